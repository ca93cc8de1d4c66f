"""The lexemes that write a schema's values as JSON text."""
