"""Waiting requests: order, policy, limits and statistics."""
