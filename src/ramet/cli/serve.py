"""``ramet serve``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ramet.cli.options import Model, Threads

_CAPACITY = "Capacity"
_ACCESS = "Access and operation"
_CHAT = "Chat"


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    model: Model = "smollm2",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name that requests use; may be repeated.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where the model runs: auto, cpu, cuda, cuda:1.")
    ] = "auto",
    threads: Threads = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=_CAPACITY, help="Sequences that run at once."),
    ] = None,
    max_tokens_per_step: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=_CAPACITY, help="Tokens of one step.")
    ] = None,
    max_waiting: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=_CAPACITY, help="Requests that may wait.")
    ] = None,
    max_context_len: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=_CAPACITY, help="Most tokens of a request.")
    ] = None,
    cache_mib: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=_CAPACITY, help="Memory for keys and values, in MiB."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(rich_help_panel=_CAPACITY, help="Scheduling policy.")
    ] = None,
    prefix_store: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_CAPACITY, help="Folder that keeps hot prefixes."),
    ] = None,
    api_keys: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_ACCESS, help="JSON file of tenants and their keys."),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_ACCESS, help="Origin that browsers may call from."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option(rich_help_panel=_ACCESS, help="Log a line a request, without prompts.")
    ] = False,
    tool_format: Annotated[
        str | None,
        typer.Option(rich_help_panel=_CHAT, help="How the model writes tool calls."),
    ] = None,
    reasoning_format: Annotated[
        str | None,
        typer.Option(rich_help_panel=_CHAT, help="How the model marks its reasoning."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            rich_help_panel=_ACCESS,
            help="Seconds that running requests get to finish at the end.",
        ),
    ] = 30.0,
) -> None:
    """Serve a model over the OpenAI API."""
    for number in (signal.SIGTERM, signal.SIGINT):  # until the server takes them over
        signal.signal(number, _end)
    from ramet.runtime.engine import EngineConfig
    from ramet.runtime.process import EngineProcess
    from ramet.runtime.server.config import ServerConfig
    from ramet.runtime.server.listen import bind
    from ramet.runtime.server.main import serve as serve_engine
    from ramet.runtime.server.tenants import read_keys_file

    engine_options: dict[str, Any] = {
        "device": device,
        "num_threads": threads,
        "max_num_seqs": max_num_seqs,
        "max_tokens_per_step": max_tokens_per_step,
        "max_waiting": max_waiting,
        "max_context_len": max_context_len,
        "cache_bytes": None if cache_mib is None else cache_mib << 20,
        "policy": policy,
        "prefix_store": None if prefix_store is None else str(prefix_store),
        "tenant_weights": {tenant.name: tenant.weight for tenant in read_keys_file(api_keys)},
    }
    given = {name: value for name, value in engine_options.items() if value is not None}
    server_config = ServerConfig(
        host=host,
        port=port,
        served_model_names=tuple(served_model_name or (model,)),
        api_keys_file=api_keys,
        cors_origins=tuple(cors_origin or ()),
        access_log=access_log,
        tool_format=tool_format,
        reasoning_format=reasoning_format,
        grace_period_s=grace,
    )

    def announce(port: int) -> None:
        typer.echo(f"Serving {model} on http://{host}:{port} (Ctrl-C ends it)", err=True)

    sockets = bind(host, port)  # a port that is taken is told before the model is loaded
    with EngineProcess.from_model(model, EngineConfig(**given)) as engine:
        serve_engine(engine, server_config, sockets=sockets, on_started=announce)


def _end(*_: object) -> NoReturn:
    """A signal while the engine starts: there is nothing to finish, so the end is graceful."""
    sys.exit(0)
