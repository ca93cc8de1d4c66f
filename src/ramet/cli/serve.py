"""``ramet serve``."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import typer

from ramet.cli.serve_options import as_command, read_settings
from ramet.cli.serve_settings import ServeSettings

logger = logging.getLogger("ramet.server")


def register(app: typer.Typer) -> None:
    app.command("serve")(as_command(serve))


def serve(given: dict[str, Any]) -> None:
    """Serve a model over the OpenAI and Anthropic APIs.

    Every option is also an environment variable (RAMET_CACHE_MIB) and a key of the YAML file given
    by --config (cache_mib). The command line overrides the environment, which overrides the file.
    """
    settings = read_settings(given)
    for number in (signal.SIGTERM, signal.SIGINT):  # until the server installs its own handlers
        signal.signal(number, _end)
    run(settings)


def run(settings: ServeSettings) -> None:
    """Serves until a signal arrives."""
    gc.disable()  # until it has started: little of what a start allocates is garbage
    # numpy isn't used for matrix products here; its threads would occupy the other cores for a
    # while after the import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ramet.runtime.api.log import configure_logging
    from ramet.runtime.engine.config import EngineConfig
    from ramet.runtime.engine.monitoring.idle_collector import IdleCollector
    from ramet.runtime.engine.process import EngineProcess
    from ramet.runtime.server.access import Access
    from ramet.runtime.server.config import ServerConfig
    from ramet.runtime.server.http.listen import bind

    server_config = ServerConfig(**settings.server_options())
    start_log = partial(configure_logging, server_config.log_level, server_config.log_format)
    start_log()
    access = Access(server_config)
    weights = access.tenants.weights()
    engine_config = EngineConfig(**settings.engine_options(), tenant_weights=weights)
    host = server_config.host
    collector = IdleCollector()

    def announce(port: int) -> None:
        scheme = "http" if access.tls is None else "https"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        plan = engine.memory_plan
        lines = [
            f"Serving {settings.model} on {url} (Ctrl-C ends it); page: {url}/ui/",
            engine.summary,
            plan.summary(),
        ]
        lines += [f"Warning: {warning}" for warning in plan.warnings]
        for line in lines:
            if server_config.log_format == "json":
                logger.info(line)
            else:
                typer.echo(line, err=True)
        collector.start()  # collections need not look at what stays

    # Bind first: a port in use should fail before the model is loaded.
    sockets = bind(host, server_config.port)
    model = _located(settings)
    with EngineProcess.from_model(
        model, engine_config, overlap=_import_server, prepare=start_log
    ) as engine:
        from ramet.lang.serving import PROGRAMS
        from ramet.runtime.server.main import serve as serve_engine

        serve_engine(
            engine,
            server_config,
            extensions=(PROGRAMS,),
            access=access,
            sockets=sockets,
            on_started=announce,
            collector=collector,
        )


def _located(settings: ServeSettings) -> str | Path:
    """The model to load; downloads it first if that is allowed."""
    if not settings.download:
        return settings.model
    from ramet.runtime.model.files.hub import download_model

    return download_model(settings.model)


def _import_server() -> None:
    """Imports the server's modules, which takes as long as loading a small model."""
    import ramet.lang.serving
    import ramet.runtime.server.main  # noqa: F401


def _end(*_: object) -> NoReturn:
    """Handles a signal during start-up: nothing runs yet, so exit immediately."""
    sys.exit(0)
