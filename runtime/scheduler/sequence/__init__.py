"""A request's growing tokens, and the tokens it may not take."""
