"""Ollama's API, for the clients that speak it."""
