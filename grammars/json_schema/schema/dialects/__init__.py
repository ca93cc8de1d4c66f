"""Drafts of JSON Schema, OpenAPI's schema objects and JSON Type Definition."""
