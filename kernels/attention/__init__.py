"""Attention over paged keys and values, grouped by shared prefix."""
