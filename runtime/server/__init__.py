"""The HTTP server: OpenAI's APIs, Anthropic's and Ramet's own over one engine.

``app`` builds the application, ``main`` runs it, ``config`` has its settings. A request goes down:
``http`` → ``protocol`` → an API's folder → ``chat`` → ``calls`` → the engine.
"""
