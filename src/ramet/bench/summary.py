"""The figures of one run of a workload."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from ramet.bench.job import Workload
from ramet.bench.service_levels import ServiceLevels
from ramet.bench.targets import Outcome
from ramet.grammars.constraints import JsonSchema
from ramet.lang.types.matching import match_text

TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True)
class Distribution:
    """Times in seconds."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        if not values:
            return cls()
        return cls(statistics.fmean(values), *(percentile(values, q) for q in (50, 90, 99)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run.

    Attributes:
        target, workload: what ran.
        wall_s: seconds from the first job to the last end.
        ttft: time to first token.
        tpot: time per output token after the first.
        gaps: time between two pieces of an output.
        e2e: time to the end of the output.
        tokens_computed: prompt tokens that no cache had.
        tokens_least: the least that a prefix cache of unlimited size has to compute; None: unknown.
        hit_rate: the share of prompt tokens that were cached.
        valid: the share of outputs under a schema that match it; None: there were none.
        goodput: requests per second within the targets; None: there were no targets.
        usd_per_million: price of a million tokens, prompts and outputs together; None: no price.
        first_error: of the jobs that failed.
    """

    target: str
    workload: str
    requests: int
    errors: int
    wall_s: float
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    ttft: Distribution
    tpot: Distribution
    gaps: Distribution
    e2e: Distribution
    prompt_tokens: int
    output_tokens: int
    tokens_cached: int
    tokens_computed: int
    tokens_least: int | None
    hit_rate: float
    valid: float | None = None
    goodput: float | None = None
    usd_per_million: float | None = None
    first_error: str | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def figure(self, path: str) -> float | None:
        """A figure by its name, such as ``ttft.p50``."""
        found: object = self
        for name in path.split("."):
            found = getattr(found, name)
        assert found is None or isinstance(found, int | float)
        return found


def percentile(values: Iterable[float], q: float) -> float:
    """The q-th percentile by nearest rank; 0 for no values."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, round(q / 100 * (len(ordered) - 1)))]


def summarise(
    workload: Workload,
    target: str,
    outcomes: Sequence[Outcome],
    wall_s: float,
    levels: ServiceLevels | None = None,
    price_per_hour: float | None = None,
) -> Summary:
    """The figures of a run, over the jobs that ended well.

    Args:
        price_per_hour: what the hardware costs, in dollars.
    """
    good = [outcome for outcome in outcomes if outcome.error is None]
    num_prompt = sum(outcome.num_prompt_tokens for outcome in good)
    num_output = sum(outcome.num_output_tokens for outcome in good)
    num_cached = sum(outcome.num_cached_tokens for outcome in good)
    num_tokens = num_prompt + num_output
    usd = None
    if price_per_hour is not None and num_tokens:
        usd = price_per_hour / 3600 * wall_s * TOKENS_PER_PRICE / num_tokens
    return Summary(
        target=target,
        workload=workload.name,
        requests=len(outcomes),
        errors=len(outcomes) - len(good),
        wall_s=wall_s,
        requests_per_s=len(good) / wall_s,
        input_tokens_per_s=num_prompt / wall_s,
        output_tokens_per_s=num_output / wall_s,
        ttft=Distribution.of([outcome.ttft_s for outcome in good]),
        tpot=Distribution.of([time for each in good if (time := each.tpot_s) is not None]),
        gaps=Distribution.of([gap for outcome in good for gap in outcome.gaps_s]),
        e2e=Distribution.of([outcome.total_s for outcome in good]),
        prompt_tokens=num_prompt,
        output_tokens=num_output,
        tokens_cached=num_cached,
        tokens_computed=num_prompt - num_cached,
        tokens_least=workload.least_prompt_tokens(),
        hit_rate=num_cached / num_prompt if num_prompt else 0.0,
        valid=_share_valid(workload, outcomes),
        goodput=None if levels is None else sum(map(levels.are_met_by, outcomes)) / wall_s,
        usd_per_million=usd,
        first_error=next((each.error for each in outcomes if each.error is not None), None),
    )


def _share_valid(workload: Workload, outcomes: Sequence[Outcome]) -> float | None:
    """The share of the outputs under a schema that match it."""
    constraints: dict[str, JsonSchema] = {}
    verdicts = []
    for job, outcome in zip(workload.jobs, outcomes, strict=True):
        if job.schema is not None:
            key = json.dumps(job.schema)
            constraint = constraints.setdefault(key, JsonSchema(job.schema))
            verdicts.append(outcome.error is None and bool(match_text(constraint, outcome.text)))
    return sum(verdicts) / len(verdicts) if verdicts else None
