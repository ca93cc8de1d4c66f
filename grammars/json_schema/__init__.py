"""JSON Schema: documents and keywords, satisfiability (solver), lexemes (text), and contexts."""
