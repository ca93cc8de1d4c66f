"""HTTP: connections, bodies, server-sent events, OpenAPI."""
