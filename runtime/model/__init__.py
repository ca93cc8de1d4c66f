"""Model files, their configuration, and the runners that compute with them."""
