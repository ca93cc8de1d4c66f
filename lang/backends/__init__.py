"""Backends: the engines and servers that answer a program's calls."""
