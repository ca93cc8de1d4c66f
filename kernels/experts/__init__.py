"""Mixtures of experts: routing and experts' products."""
