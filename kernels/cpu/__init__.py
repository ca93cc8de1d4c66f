"""A whole forward pass as one compiled program, run by a team of threads."""
