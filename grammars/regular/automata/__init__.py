"""Deterministic automata over the bytes of UTF-8, and their algebra."""
