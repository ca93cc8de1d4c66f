"""What a step's result does: advance sequences, end them, force tokens."""
