"""Building blocks of CPU kernels: vector instructions, memory, buffers, caches."""
