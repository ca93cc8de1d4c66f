"""Sets of numbers and texts that a formula leaves for a value."""
