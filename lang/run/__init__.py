"""A run of a program: session, executor, state, prompts and events."""
