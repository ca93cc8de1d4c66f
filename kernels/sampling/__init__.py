"""Token masks and sampling parameters in one pass, on CPU and GPU."""
