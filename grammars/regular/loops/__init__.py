"""Compiled loops over arrays that make automata. ``tables`` describes the arrays."""
