"""The routes of each API, a file an API."""
