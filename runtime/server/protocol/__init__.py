"""The bodies of each API as pydantic models, a file an API."""
