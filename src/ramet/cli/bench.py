"""``ramet bench``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ramet.cli.options import Model, Threads

if TYPE_CHECKING:
    from ramet.bench.runner import Summary
    from ramet.bench.targets import Target
    from ramet.bench.workloads import Workload

_SHAPE = "Shape of shared-prefix, multi-turn, json and free"


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    scenario: Annotated[
        str,
        typer.Argument(
            help="a, a512, b16, b64, shared-prefix, multi-turn, json or free; several with commas."
        ),
    ],
    model: Model = "smollm2",
    url: Annotated[
        str | None, typer.Option(help="A server to load instead of an engine in this process.")
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(help="A second server: same work in turn, and the ratios of the first to it."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each scenario.")] = 3,
    seed: Annotated[
        str, typer.Option(help="Another seed gives other prompts, which no cache has yet.")
    ] = "0",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a run.")] = False,
    threads: Threads = None,
    groups: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 1,
    per_group: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 32,
    prefix_len: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 1024,
    suffix_len: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 32,
    output_len: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 32,
    turns: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 4,
    concurrency: Annotated[
        int, typer.Option(min=1, rich_help_panel=_SHAPE, help="Most requests at once, if no rate.")
    ] = 8,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            rich_help_panel=_SHAPE,
            help="Requests a second, Poisson, however many are running.",
        ),
    ] = None,
) -> None:
    """Load an engine or a server with a seeded workload, and print what it did.

    The exit code is 1 if a request failed.
    """
    import asyncio

    from ramet.bench.targets import EngineTarget, UrlTarget
    from ramet.bench.workloads import SCENARIOS, Shape
    from ramet.runtime.engine import Engine, EngineConfig

    unknown = [name for name in scenario.split(",") if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"unknown scenario {unknown[0]!r}; there are {[*SCENARIOS]}")
    shape = Shape(groups, per_group, prefix_len, suffix_len, output_len, turns, concurrency, rate)

    def workloads(number: int) -> list[Workload]:
        return [SCENARIOS[name](f"{seed}/{number}", shape) for name in scenario.split(",")]

    async def run_all(*targets: Target) -> None:
        try:
            await _run(targets, workloads, repeat, as_json=as_json)
        finally:
            for target in targets:
                await target.close()

    others = [] if compare is None else [UrlTarget(compare, model)]
    if url is not None:
        asyncio.run(run_all(UrlTarget(url, model), *others))
        return
    with Engine.from_model(model, EngineConfig(num_threads=threads)) as engine:
        asyncio.run(run_all(EngineTarget(engine), *others))


async def _run(
    targets: tuple[Target, ...],
    workloads: object,
    repeat: int,
    *,
    as_json: bool,
) -> None:
    from ramet.bench.report import print_ratios, print_report
    from ramet.bench.runner import run_workload
    from ramet.bench.workloads import SCENARIOS, Shape

    warm = SCENARIOS["json"]("warm-up", Shape(per_group=2, concurrency=2))
    for target in targets:
        await run_workload(warm, target)
    runs: dict[str, list[list[Summary]]] = {}
    for number in range(repeat):
        for workload in workloads(number):  # type: ignore[operator]
            row = [await run_workload(workload, target) for target in targets]
            runs.setdefault(workload.name, []).append(row)
            if as_json:
                for summary in row:
                    print(json.dumps({"repeat": number, **summary.as_dict()}), flush=True)
    if not as_json:
        print_report(runs)
    elif len(targets) > 1:
        print_ratios(runs)
    if any(summary.errors for rows in runs.values() for row in rows for summary in row):
        raise typer.Exit(1)
