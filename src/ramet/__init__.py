"""Ramet: structured generation and agent serving."""
