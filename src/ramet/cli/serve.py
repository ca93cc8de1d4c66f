"""``ramet serve``."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Any, NoReturn

import typer

from ramet.cli.serve_options import as_command, read_settings
from ramet.cli.serve_settings import ServeSettings


def register(app: typer.Typer) -> None:
    app.command("serve")(as_command(serve))


def serve(given: dict[str, Any]) -> None:
    """Serve a model over the OpenAI and Anthropic APIs.

    An option may also be an environment variable (RAMET_CACHE_MIB) or a key of the YAML file that
    --config names (cache_mib). The command line goes before the environment, that before the file.
    """
    settings = read_settings(given)
    for number in (signal.SIGTERM, signal.SIGINT):  # until the server takes them over
        signal.signal(number, _end)
    run(settings)


def run(settings: ServeSettings) -> None:
    """Serves until a signal ends it."""
    gc.disable()  # until it has started: hardly anything that a start makes goes again
    # Nothing here multiplies matrices with numpy, whose threads would use up the other cores a
    # while when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ramet.runtime.engine.config import EngineConfig
    from ramet.runtime.engine.process import EngineProcess
    from ramet.runtime.server.calls.tenants import read_keys_file
    from ramet.runtime.server.config import ServerConfig
    from ramet.runtime.server.http.listen import bind

    weights = {tenant.name: tenant.weight for tenant in read_keys_file(settings.api_keys)}
    engine_config = EngineConfig(**settings.engine_options(), tenant_weights=weights)
    server_config = ServerConfig(**settings.server_options())

    def announce(port: int) -> None:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{host}:{port}"
        typer.echo(f"Serving {settings.model} on {url} (Ctrl-C ends it)", err=True)
        gc.enable()
        gc.freeze()  # no collection has to look again at what stays

    # A port that is taken is told before the model is loaded.
    sockets = bind(settings.host, settings.port)
    with EngineProcess.from_model(
        settings.model, engine_config, meanwhile=_import_server
    ) as engine:
        from ramet.lang.serving import PROGRAMS
        from ramet.runtime.server.main import serve as serve_engine

        serve_engine(
            engine,
            server_config,
            extensions=(PROGRAMS,),
            sockets=sockets,
            on_started=announce,
        )


def _import_server() -> None:
    """Its modules take as long to load as a small model."""
    import ramet.lang.serving
    import ramet.runtime.server.main  # noqa: F401


def _end(*_: object) -> NoReturn:
    """A signal while the engine starts: there is nothing to finish, so the end is graceful."""
    sys.exit(0)
