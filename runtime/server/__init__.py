"""The HTTP server: OpenAI's APIs and Ramet's own over one engine."""

from ramet.runtime.server.app import create_app
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.extension import Extension
from ramet.runtime.server.main import serve

__all__ = ["Extension", "ServerConfig", "create_app", "serve"]
