"""JSON Schema: read (schema), decided (solver), written (text) and walked (contexts)."""
