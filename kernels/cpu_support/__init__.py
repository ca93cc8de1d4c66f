"""What the CPU code of operations is written with: vector instructions, memory, buffers, caches."""
