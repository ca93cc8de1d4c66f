"""Choice of kernel by device, tile sizes, and ahead-of-time compilation."""
