"""Compiled kernels for CPUs, and the forward pass as data that they run."""
