"""Linear layers on weights as they are stored."""
