"""What a schema says: documents, keywords, and formulas over them."""
