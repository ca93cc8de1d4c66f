"""Keywords and plain values as formulas."""
