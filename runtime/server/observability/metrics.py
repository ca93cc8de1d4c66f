"""The server's metrics, under vLLM's names where the meaning is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric

from ramet.runtime.api.events import Failed, Finished, Timings, Usage
from ramet.runtime.engine.monitoring.gc_pauses import GC_PAUSES
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.server.observability.exposition import reading, render_metrics
from ramet.runtime.server.observability.recent_timings import (
    RecentTimings,
    time_per_output_token,
)

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 30, 60, 300)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)


Reading = Callable[[EngineStats], float]

_ENGINE_SERIES: tuple[tuple[str, str, str, Reading], ...] = (
    (
        "vllm:num_requests_running",
        "gauge",
        "Requests in the running batch.",
        lambda stats: stats.num_running,
    ),
    (
        "vllm:num_requests_waiting",
        "gauge",
        "Requests waiting to run.",
        lambda stats: stats.num_waiting + stats.num_compiling,
    ),
    (
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Fraction of KV cache pages in use.",
        lambda stats: stats.num_held_pages / max(stats.num_pages, 1),
    ),
    (
        "vllm:num_preemptions_total",
        "counter",
        "Preempted requests.",
        lambda stats: stats.num_preemptions,
    ),
    (
        "ramet:grammars_compiling",
        "gauge",
        "Requests whose grammar is being compiled.",
        lambda stats: stats.num_compiling,
    ),
    (
        "ramet:grammars",
        "gauge",
        "Compiled grammars in memory.",
        lambda stats: stats.num_grammars,
    ),
    (
        "ramet:grammar_bytes",
        "gauge",
        "Approximate memory of compiled grammars.",
        lambda stats: stats.num_grammar_bytes,
    ),
    (
        "ramet:longest_gc_pause_seconds",
        "gauge",
        "Longest garbage collection of the engine's process since its start.",
        lambda stats: stats.longest_gc_pause_s,
    ),
    (
        "ramet:server_longest_gc_pause_seconds",
        "gauge",
        "Longest garbage collection of the server's process since its start.",
        lambda _: GC_PAUSES.longest_s,
    ),
    (
        "ramet:cached_pages",
        "gauge",
        "Pages held by the prefix cache.",
        lambda stats: stats.num_cached_pages,
    ),
    ("ramet:free_pages", "gauge", "Free KV cache pages.", lambda stats: stats.num_free_pages),
    (
        "ramet:evicted_pages_total",
        "counter",
        "Cached pages that were evicted.",
        lambda stats: stats.num_evicted_pages,
    ),
    ("ramet:steps_total", "counter", "Steps of the engine.", lambda stats: stats.num_steps),
    (
        "ramet:good_requests_total",
        "counter",
        "Goodput: requests that succeeded and met their latency targets.",
        lambda stats: stats.num_good_requests,
    ),
    (
        "ramet:drafted_tokens_total",
        "counter",
        "Draft tokens proposed by speculative decoding.",
        lambda stats: stats.num_drafted_tokens,
    ),
    (
        "ramet:accepted_tokens_total",
        "counter",
        "Draft tokens that verification accepted.",
        lambda stats: stats.num_accepted_tokens,
    ),
    (
        "ramet:computed_tokens_total",
        "counter",
        "Prompt and output tokens computed by the model.",
        lambda stats: stats.num_computed_tokens,
    ),
)


class ServerMetrics:
    """The server's metrics. A request costs a few additions when it ends; a token costs nothing.

    Attributes:
        recent: timings of recently ended requests.
    """

    def __init__(self, model_name: str) -> None:
        self._labels = {"model_name": model_name}
        self.recent = RecentTimings()
        self._registry = CollectorRegistry()
        self._success = self._counter(
            "vllm:request_success_total", "Finished requests, by finish reason.", "finished_reason"
        )
        self._failed = self._counter(
            "ramet:request_failed_total", "Requests that ended in an error, by its code.", "code"
        )
        self._prompt = self._counter(
            "vllm:prompt_tokens_total", "Prompt tokens of requests that have ended."
        )
        self._generated = self._counter(
            "vllm:generation_tokens_total", "Tokens of requests that have ended."
        )
        self._queries = self._counter(
            "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache."
        )
        self._hits = self._counter(
            "vllm:prefix_cache_hits_total", "Prompt tokens found in the cache."
        )
        self._forced = self._counter(
            "ramet:forced_tokens_total", "Tokens forced by a grammar (jump-forward)."
        )
        self._http = self._counter(
            "ramet:http_responses_total", "HTTP responses, by path and status.", "path", "status"
        )
        self._ttft = self._histogram(
            "vllm:time_to_first_token_seconds", "From submission to the first token.", _SECONDS
        )
        self._e2e = self._histogram(
            "vllm:e2e_request_latency_seconds", "From submission to the last token.", _SECONDS
        )
        self._queued = self._histogram(
            "vllm:request_queue_time_seconds", "From submission to the first step.", _SECONDS
        )
        self._tpot = self._histogram(
            "vllm:request_time_per_output_token_seconds",
            "A request's mean time a token after its first.",
            _TOKEN_SECONDS,
        )
        self._grammar = self._histogram(
            "ramet:grammar_compile_seconds", "Time to get a request's grammar.", _SECONDS
        )
        self._prompt_size = self._histogram(
            "vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS
        )
        self._output_size = self._histogram(
            "vllm:request_generation_tokens", "Tokens of a request's output.", _TOKENS
        )
        self._programs = self._counter(
            "ramet:programs_total", "Programs that have ended, by outcome.", "outcome"
        )
        self._program_time = self._histogram(
            "ramet:program_seconds", "A program's time, from graph to end.", _SECONDS
        )
        self._program_calls = self._histogram("ramet:program_calls", "Calls of a program.", _TOKENS)

    def render(self, stats: EngineStats | None, others: Iterable[Metric] = ()) -> bytes:
        """Renders all series, and others, in the text format.

        ``stats`` is None if the engine is down.
        """
        is_up = float(stats is not None)
        readings = [reading("ramet:engine_up", "gauge", "Whether the engine is alive.", is_up)]
        if stats is not None:
            readings += [
                reading(name, kind, help_text, read(stats))
                for name, kind, help_text, read in _ENGINE_SERIES
            ]
        return render_metrics(self._registry, [*readings, *others], self._labels)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self._registry)

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, help_text, buckets=buckets, registry=self._registry)

    def record_response(self, path: str, status: int) -> None:
        """Counts a response of a known route."""
        self._http.labels(path=path, status=str(status)).inc()

    def record_program(self, outcome: str, seconds: float, num_calls: int) -> None:
        """Records a program's end: ``completed``, ``failed`` or ``aborted``."""
        self._programs.labels(outcome=outcome).inc()
        self._program_time.observe(seconds)
        self._program_calls.observe(num_calls)

    def record_end(self, event: Finished | Failed) -> None:
        """Records a request's last event."""
        if isinstance(event, Finished):
            self._success.labels(finished_reason=event.reason).inc()
            self._usage(event.usage)
            self._timings(event.timings, event.usage)
        else:
            self._failed.labels(code=event.error.code or "unknown").inc()
            self._usage(event.usage)

    def _usage(self, usage: Usage) -> None:
        self._prompt.inc(usage.prompt_tokens)
        self._generated.inc(usage.completion_tokens)
        self._queries.inc(usage.prompt_tokens)
        self._hits.inc(usage.cached_tokens)
        self._forced.inc(usage.forced_tokens)
        self._prompt_size.observe(usage.prompt_tokens)
        self._output_size.observe(usage.completion_tokens)

    def _timings(self, timings: Timings, usage: Usage) -> None:
        self.recent.add(timings, usage)
        if timings.scheduled_s is not None:
            self._queued.observe(timings.scheduled_s)
        if timings.grammar_s:
            self._grammar.observe(timings.grammar_s)
        if timings.first_token_s is not None:
            self._ttft.observe(timings.first_token_s)
        if timings.finished_s is not None:
            self._e2e.observe(timings.finished_s)
        if (tpot := time_per_output_token(timings, usage)) is not None:
            self._tpot.observe(tpot)
