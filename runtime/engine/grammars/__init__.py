"""Grammars of an engine: compiled in threads, shared by requests, for its vocabulary."""
