"""What the server measures, under vLLM's names where the meaning is the same."""

from __future__ import annotations

from collections.abc import Callable

from ramet.runtime.api.events import Failed, Finished, Timings, Usage
from ramet.runtime.engine.stats import EngineStats
from ramet.runtime.server.observability.metrics import Counter, Histogram, Registry, Value

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
        "Requests that wait to run.",
        lambda stats: stats.num_waiting + stats.num_compiling,
    ),
    (
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of the pages in use; 1 is all of them.",
        lambda stats: stats.num_held_pages / max(stats.num_pages, 1),
    ),
    (
        "vllm:num_preemptions_total",
        "counter",
        "Requests that gave their pages up.",
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
        "Compiled grammars that are kept.",
        lambda stats: stats.num_grammars,
    ),
    (
        "ramet:grammar_bytes",
        "gauge",
        "About the memory that compiled grammars take.",
        lambda stats: stats.num_grammar_bytes,
    ),
    (
        "ramet:cached_pages",
        "gauge",
        "Pages that the prefix cache holds.",
        lambda stats: stats.num_cached_pages,
    ),
    ("ramet:free_pages", "gauge", "Pages that are free.", lambda stats: stats.num_free_pages),
    (
        "ramet:evicted_pages_total",
        "counter",
        "Cached pages that were given up.",
        lambda stats: stats.num_evicted_pages,
    ),
    ("ramet:steps_total", "counter", "Steps of the engine.", lambda stats: stats.num_steps),
    (
        "ramet:good_requests_total",
        "counter",
        "Goodput: requests that ended well and met their targets, if they had any.",
        lambda stats: stats.num_good_requests,
    ),
    (
        "ramet:drafted_tokens_total",
        "counter",
        "Tokens that were guessed ahead.",
        lambda stats: stats.num_drafted_tokens,
    ),
    (
        "ramet:accepted_tokens_total",
        "counter",
        "Guessed tokens that were right, each a step saved.",
        lambda stats: stats.num_accepted_tokens,
    ),
    (
        "ramet:computed_tokens_total",
        "counter",
        "Tokens that the model has read, of prompts and outputs.",
        lambda stats: stats.num_computed_tokens,
    ),
)


class Telemetry:
    """The server's metrics. One end of a request costs a few additions; a token costs nothing."""

    def __init__(self, model_name: str) -> None:
        self.registry = registry = Registry(model_name=model_name)
        self._success = registry.add(
            Counter("vllm:request_success_total", "Finished requests, by finish reason.")
        )
        self._failed = registry.add(
            Counter("ramet:request_failed_total", "Requests that ended in an error, by its code.")
        )
        self._prompt = registry.add(
            Counter("vllm:prompt_tokens_total", "Prompt tokens of requests that have ended.")
        )
        self._generated = registry.add(
            Counter("vllm:generation_tokens_total", "Tokens of requests that have ended.")
        )
        self._queries = registry.add(
            Counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache.")
        )
        self._hits = registry.add(
            Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.")
        )
        self._forced = registry.add(
            Counter("ramet:forced_tokens_total", "Tokens that a grammar appended unsampled.")
        )
        self._http = registry.add(
            Counter("ramet:http_responses_total", "HTTP responses, by path and status.")
        )
        self._ttft = registry.add(
            Histogram(
                "vllm:time_to_first_token_seconds", "From submission to the first token.", _SECONDS
            )
        )
        self._e2e = registry.add(
            Histogram(
                "vllm:e2e_request_latency_seconds", "From submission to the last token.", _SECONDS
            )
        )
        self._queued = registry.add(
            Histogram(
                "vllm:request_queue_time_seconds", "From submission to the first step.", _SECONDS
            )
        )
        self._tpot = registry.add(
            Histogram(
                "vllm:request_time_per_output_token_seconds",
                "A request's mean time a token after its first.",
                _TOKEN_SECONDS,
            )
        )
        self._grammar = registry.add(
            Histogram("ramet:grammar_compile_seconds", "Time to get a request's grammar.", _SECONDS)
        )
        self._prompt_size = registry.add(
            Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        )
        self._output_size = registry.add(
            Histogram("vllm:request_generation_tokens", "Tokens of a request's output.", _TOKENS)
        )

        self._programs = registry.add(
            Counter("ramet:programs_total", "Programs that have ended, by how they ended.")
        )
        self._program_time = registry.add(
            Histogram("ramet:program_seconds", "A program's time, from graph to end.", _SECONDS)
        )
        self._program_calls = registry.add(
            Histogram("ramet:program_calls", "Calls of a program.", _TOKENS)
        )

    def render(self, stats: EngineStats | None) -> str:
        """Every series in the text exposition format; without ``stats``, the engine is down."""
        up = Value(
            "ramet:engine_up", "gauge", "Whether the engine lives.", float(stats is not None)
        )
        engine = [
            Value(name, kind, help_text, read(stats))
            for name, kind, help_text, read in _ENGINE_SERIES
            if stats is not None
        ]
        return self.registry.render([up, *engine])

    def http(self, path: str, status: int) -> None:
        """One response of a known route."""
        self._http.add(path=path, status=str(status))

    def program(self, outcome: str, seconds: float, num_calls: int) -> None:
        """One program's end: ``completed``, ``failed`` or ``aborted``."""
        self._programs.add(outcome=outcome)
        self._program_time.observe(seconds)
        self._program_calls.observe(num_calls)

    def end(self, event: Finished | Failed) -> None:
        """One request's last event."""
        if isinstance(event, Finished):
            self._success.add(finished_reason=event.reason)
            self._usage(event.usage)
            self._timings(event.timings, event.usage)
        else:
            self._failed.add(code=event.error.code or "unknown")
            self._usage(event.usage)

    def _usage(self, usage: Usage) -> None:
        self._prompt.add(usage.prompt_tokens)
        self._generated.add(usage.completion_tokens)
        self._queries.add(usage.prompt_tokens)
        self._hits.add(usage.cached_tokens)
        self._forced.add(usage.forced_tokens)
        self._prompt_size.observe(usage.prompt_tokens)
        self._output_size.observe(usage.completion_tokens)

    def _timings(self, timings: Timings, usage: Usage) -> None:
        if timings.scheduled_s is not None:
            self._queued.observe(timings.scheduled_s)
        if timings.grammar_s:
            self._grammar.observe(timings.grammar_s)
        if timings.first_token_s is not None:
            self._ttft.observe(timings.first_token_s)
        if timings.finished_s is not None:
            self._e2e.observe(timings.finished_s)
            if timings.first_token_s is not None and usage.completion_tokens > 1:
                span = timings.finished_s - timings.first_token_s
                self._tpot.observe(span / (usage.completion_tokens - 1))
