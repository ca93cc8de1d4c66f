"""Seams for tests: scripted models and engines, simulation, a reference model."""
