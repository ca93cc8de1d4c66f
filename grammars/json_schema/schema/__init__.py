"""Schemas: documents, keywords, and formulas over them."""
