"""The request graph of a program: nodes, references, checks, JSON and views."""
