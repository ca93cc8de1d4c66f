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

_SHAPE = "Workload shape (shared-prefix, multi-turn, json, free)"


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    scenario: Annotated[
        str,
        typer.Argument(
            help="a, a512, b16, b64, shared-prefix, multi-turn, json or free; comma-separated."
        ),
    ],
    model: Model = "smollm2",
    url: Annotated[
        str | None, typer.Option(help="Server to benchmark instead of an in-process engine.")
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(help="Second server to compare with, in alternating runs."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs per scenario.")] = 3,
    seed: Annotated[
        str, typer.Option(help="Seed of the prompts; change it to avoid warm caches.")
    ] = "0",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
    threads: Threads = None,
    groups: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 1,
    per_group: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 32,
    prefix_len: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 1024,
    suffix_len: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 32,
    output_len: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 32,
    turns: Annotated[int, typer.Option(min=1, rich_help_panel=_SHAPE)] = 4,
    concurrency: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=_SHAPE, help="Most concurrent requests, without --rate."
        ),
    ] = 8,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            rich_help_panel=_SHAPE,
            help="Poisson arrival rate in requests per second.",
        ),
    ] = None,
) -> None:
    """Benchmark an engine or a server with seeded workloads.

    The exit code is 1 if a request failed.
    """
    import asyncio

    from ramet.bench.targets import EngineTarget, UrlTarget
    from ramet.bench.workloads import SCENARIOS, Shape
    from ramet.runtime.engine import Engine, EngineConfig

    unknown = [name for name in scenario.split(",") if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(
            f"unknown scenario {unknown[0]!r}; available: {', '.join(SCENARIOS)}"
        )
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
