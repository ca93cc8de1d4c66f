"""The states of a value that is being written: frames of objects and arrays."""
