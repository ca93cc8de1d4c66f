"""The page at ``/ui``: a playground, the cache's tree, programs and the engine, live."""

from __future__ import annotations

from ramet.runtime.server.ui.routes import page_router

__all__ = ["page_router"]
