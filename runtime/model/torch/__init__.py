"""The torch runner: Triton kernels on a GPU, the reference on a CPU."""
