"""The foundation of the language: errors, the event loop, greenlets."""
