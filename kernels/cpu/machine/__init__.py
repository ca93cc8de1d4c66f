"""How CPU kernels are emitted: LLVM IR, memory, CPU features, buffers."""
