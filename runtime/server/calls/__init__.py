"""Calls: admission, tenants, requests in flight, events, usage, responses."""
