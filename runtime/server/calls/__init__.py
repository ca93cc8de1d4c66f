"""A call's life on the server: tenant, limits, requests in flight, usage."""
