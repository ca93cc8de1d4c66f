"""Programs on a server: what ``ramet serve`` mounts above the runtime's own routes."""

from ramet.lang.serving.route import PROGRAMS

__all__ = ["PROGRAMS"]
