"""``ramet bench``: one command per load, all with the options of a run."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramet.bench.workloads import LOADS, MAX_VOCAB_SIZE, Load
from ramet.cli.options import Threads

if TYPE_CHECKING:
    from ramet.bench.results import Results
    from ramet.bench.targets import Target

_LOAD = "Load"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a bench: targets, repeats and output."""

    url: Annotated[
        str | None, typer.Option(help="Server to benchmark; default: an engine in this process.")
    ] = None
    model: Annotated[
        str | None,
        typer.Option(help="Model name or file; of a server, default: the first that it lists."),
    ] = None
    endpoint: Annotated[
        Literal["completions", "chat"] | None,
        typer.Option(help="Where chats are sent; default: chat. Token ids go to completions."),
    ] = None
    api_key: Annotated[str | None, typer.Option(help="The server's API key.")] = None
    compare: Annotated[
        str | None, typer.Option(help="Second server, which gets the same requests in turn.")
    ] = None
    compare_model: Annotated[
        str | None, typer.Option(help="The second server's model; default: the first it lists.")
    ] = None
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Compare with the same target without a prefix cache."),
    ] = False
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs.")] = 3
    seed: Annotated[
        str, typer.Option(help="Seed of the prompts; change it to avoid warm caches.")
    ] = "0"
    vocab_size: Annotated[
        int,
        typer.Option(min=16, help="Random token ids stay below it; smaller for small models."),
    ] = MAX_VOCAB_SIZE
    slo: Annotated[
        str | None,
        typer.Option(help="Targets in seconds for goodput, such as ttft=0.5,tpot=0.05."),
    ] = None
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="Dollars per hour, for the price of tokens.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False
    html: Annotated[
        Path | None, typer.Option(help="Also write one HTML page with charts.", metavar="FILE")
    ] = None
    threads: Threads = None


def register(app: typer.Typer) -> None:
    bench = typer.Typer(
        no_args_is_help=True,
        help="Benchmark an engine or a server with seeded loads.\n\n"
        "The exit code is 1 if a request failed.",
    )
    for load in LOADS:
        bench.command(load.name)(_command(load))
    app.add_typer(bench, name="bench")


def _command(load: type[Load]) -> Callable[..., None]:
    """The command of a load, with a parameter per option of the load and of the run."""

    @functools.wraps(load, assigned=["__doc__"], updated=[])
    def command(**given: Any) -> None:
        names = {each.name for each in dataclasses.fields(load)}
        own = {name: given.pop(name) for name in names}
        run(load(**own), RunOptions(**given))

    del command.__wrapped__
    parameters = [*_load_parameters(load), *_run_parameters()]
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _load_parameters(load: type[Load]) -> list[inspect.Parameter]:
    kinds = typing.get_type_hints(load, include_extras=True)
    found = []
    for each in dataclasses.fields(load):
        kind = kinds[each.name]
        if typing.get_origin(kind) is not Annotated:  # an argument, not an option
            argument = typer.Argument(metavar=each.name.upper())
            found.append(_parameter(each.name, kind, argument))
            continue
        bare, option = typing.get_args(kind)
        least = None if Path in typing.get_args(bare) else option.least
        info = typer.Option(help=option.help, min=least, rich_help_panel=_LOAD)
        found.append(_parameter(each.name, Annotated[bare, info], each.default))
    return found


def _run_parameters() -> list[inspect.Parameter]:
    kinds = typing.get_type_hints(RunOptions, include_extras=True)
    return [
        _parameter(each.name, kinds[each.name], each.default)
        for each in dataclasses.fields(RunOptions)
    ]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def run(load: Load, options: RunOptions) -> None:
    """Runs a load against the targets that the options name."""
    import asyncio
    import contextlib

    from ramet.bench.report import print_ratios, print_table, write_page
    from ramet.bench.targets import EngineTarget, ServerTarget
    from ramet.runtime.engine import Engine, EngineConfig

    if options.compare is not None and options.no_cache:
        raise typer.BadParameter("can't be combined with --compare", param_hint="--no-cache")
    targets: list[Target] = []
    with contextlib.ExitStack() as stack:
        if options.url is None:
            config = EngineConfig(num_threads=options.threads)
            engine = stack.enter_context(Engine.from_model(options.model or "smollm2", config))
            targets.append(EngineTarget(engine))
            if options.no_cache:
                targets.append(EngineTarget(engine, use_cache=False))
        else:
            server = functools.partial(
                ServerTarget, options.url, options.model,
                endpoint=options.endpoint, api_key=options.api_key,
            )  # fmt: skip
            targets.append(server())
            if options.no_cache:
                targets.append(server(use_cache=False))
        if options.compare is not None:
            other = ServerTarget(
                options.compare, options.compare_model,
                endpoint=options.endpoint, api_key=options.api_key,
            )  # fmt: skip
            targets.append(other)
        results = asyncio.run(_run_all(load, targets, options))
    if options.html is not None:
        write_page(results, options.html, "ramet " + " ".join(sys.argv[1:]))
    if not options.as_json:
        print_table(results)
    elif len(targets) > 1:
        print_ratios(results)
    if results.has_errors:
        raise typer.Exit(1)


async def _run_all(load: Load, targets: list[Target], options: RunOptions) -> Results:
    """All repeats, the targets in turn, after a warm-up of each."""
    import json

    from ramet.bench.results import Results
    from ramet.bench.runner import run_workload
    from ramet.bench.service_levels import ServiceLevels
    from ramet.bench.targets import EngineTarget
    from ramet.bench.workloads import ordinary_ids
    from ramet.bench.workloads.random_tokens import Json
    from ramet.cli.bench_progress import BenchProgress

    levels = None if options.slo is None else ServiceLevels.parse(options.slo)
    vocab_size = options.vocab_size
    for target in targets:
        if isinstance(target, EngineTarget):
            vocab_size = min(vocab_size, target.engine.vocab_size)
    ids = ordinary_ids(vocab_size)
    results = Results(levels, options.price_per_hour)
    try:
        for target in targets:
            await target.check()
        workloads = [load.build(f"{options.seed}/{each}", ids) for each in range(options.repeat)]
        with BenchProgress() as progress:
            warm_up = Json(requests=2, concurrency=2).build("warm-up", ids)
            for target in targets:
                await run_workload(warm_up, target, progress.begin(warm_up, target.name, "warm-up"))
            for number, workload in enumerate(workloads):
                runs = []
                for target in targets:
                    title = f"run {number + 1}/{options.repeat}"
                    on_end = progress.begin(workload, target.name, title)
                    runs.append(await run_workload(workload, target, on_end))
                for summary in results.add(runs):
                    if options.as_json:
                        print(json.dumps({"repeat": number, **summary.as_dict()}), flush=True)
    finally:
        for target in targets:
            await target.close()
    return results
