"""Contexts of JSON values: the frames of open objects and arrays, and what may come next."""
