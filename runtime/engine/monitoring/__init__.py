"""Monitoring of an engine: counters, garbage collections, hanging steps, recorded requests."""
