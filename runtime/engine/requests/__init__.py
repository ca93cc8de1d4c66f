"""Live requests of an engine: admission, input, events, and their one registry."""
