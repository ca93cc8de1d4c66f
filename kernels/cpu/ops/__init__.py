"""The operations of a forward pass on a CPU."""
