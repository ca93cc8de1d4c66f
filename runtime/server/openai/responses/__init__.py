"""``/v1/responses``."""
