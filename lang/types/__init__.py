"""Output types, patterns, options, and values that are resolved later."""
