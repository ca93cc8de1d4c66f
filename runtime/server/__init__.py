"""The HTTP server: OpenAI's APIs, Anthropic's and Ramet's own over one engine.

``app`` makes the application, ``main`` serves it, ``config`` has its settings.
"""
