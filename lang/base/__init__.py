"""What all of the language stands on: errors, the event loop, greenlets."""
