"""The speed-up by speculative decoding on the model's own text, in simulated time.

    python benchmarks/serving/drafts.py
    python benchmarks/serving/drafts.py --load chats --seeds 4 --max-draft-len 4

Each load runs on the model, without drafts and with them, under a clock that only steps advance:
by the time of a step of its tokens, logits and context by the formula of ``step_ms``, which was
fitted to one machine's steps of 1 to 256 tokens, and by what is done between two steps. So the same
call prints the same figures on any machine, however busy, and policies that differ by a percent can
be compared; how close the formula is to a machine, they don't show.

Printed are the rate of tokens over that without drafts, the same of the mean time of a request,
the acceptance rate of draft tokens, steps over those without, and the gaps between two events of a
stream: their median, and the one that a twentieth of them exceed.
"""

from __future__ import annotations

import argparse
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ramet.runtime.api.batch import Batch, Overlap, StepResult
from ramet.runtime.api.events import Event, Failed, Finished, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.load import open_model
from ramet.runtime.tokenizer import Tokenizer, read_tokenizer

QUESTIONS = (
    "Tell me about the history of Rome.",
    "Write a short story about a dragon.",
    "How do I bake bread?",
    "Explain photosynthesis to a child.",
    "List ten animals and their habitats.",
    "What is the capital of France, and why is it famous?",
    "Write a poem about the sea.",
    "Give me a plan for learning Python.",
    "What are the benefits of exercise?",
    "Describe the water cycle.",
    "Write a letter to a friend about a holiday.",
    "How does a computer work?",
    "Tell me a joke about cats.",
    "What is machine learning?",
    "Summarise the plot of Romeo and Juliet.",
    "How do I grow tomatoes?",
)


def step_ms(batch: Batch) -> float:
    """A step's milliseconds: SmolLM2-135M in 4 bits on two cores, within a tenth."""
    context, pages = int((batch.positions + 1).sum()), int(batch.context_lens.sum())
    tokens, logits = batch.num_tokens, len(batch.logit_tokens)
    forward = 2.4 + 0.39 * tokens + 0.055 * logits + 1.9e-4 * context + 3.2e-4 * pages
    return max(3.9, forward) + 0.8 + 0.005 * batch.num_rows + 0.02 * logits


class TimedRunner:
    """A model runner that says how long its steps would have taken."""

    def __init__(self, runner: CpuRunner) -> None:
        self._runner = runner
        self.vocab_size = runner.vocab_size
        self.max_context_len = runner.max_context_len
        self.page_size = runner.page_size
        self.num_pages = runner.num_pages
        self.exact_in_any_batch = runner.exact_in_any_batch
        self.has_hidden_states = runner.has_hidden_states
        self.page_storage = None
        self.seconds = 0.0
        self.may_begin = threading.Event()  # all that come at once have come

    def run(self, batch: Batch, overlap: Overlap | None = None) -> StepResult:
        self.may_begin.wait()
        result = self._runner.run(batch, overlap)
        self.seconds += step_ms(batch) / 1e3
        return result

    def prepare_ahead(self) -> bool:
        return False

    def close(self) -> None:
        """It is used by one engine after the other."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests, ``at_once`` of them at a time."""

    requests: list[Request]
    at_once: int


def _random_ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(1000, 40_000) for _ in range(count)]


def _exactly(num_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)


def streams(_: Engine, rng: random.Random) -> Load:
    """16 streams of 128 random tokens, 128 out."""
    prompts = [tuple(_random_ids(rng, 128)) for _ in range(16)]
    return Load([Request(prompt_token_ids=each, params=_exactly(128)) for each in prompts], 16)


def shared_prefix(_: Engine, rng: random.Random) -> Load:
    """32 requests, 8 at once, that share 1,024 random tokens and have 32 of their own; 32 out."""
    shared = _random_ids(rng, 1024)
    prompts = [tuple(shared + _random_ids(rng, 32)) for _ in range(32)]
    return Load([Request(prompt_token_ids=each, params=_exactly(32)) for each in prompts], 8)


def _ask(engine: Engine, question: str, max_tokens: int) -> Request:
    assert engine.chat_template is not None
    ids = tuple(engine.chat_template.encode([{"role": "user", "content": question}]))
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return Request(prompt_token_ids=ids, params=params)


def chats(engine: Engine, rng: random.Random) -> Load:
    """16 different questions at once, until the last answer ends; nothing new comes."""
    number = rng.randrange(1000)
    return Load([_ask(engine, f"{each} ({number})", 256) for each in QUESTIONS], 16)


def answers(engine: Engine, rng: random.Random) -> Load:
    """32 questions of one kind, 8 at once."""
    names = [f"person {rng.randrange(10_000)}" for _ in range(32)]
    text = "Describe {} as JSON with the fields name, age, role, skills, remote."
    return Load([_ask(engine, text.format(name), 160) for name in names], 8)


LOADS = {
    "streams": streams,
    "shared-prefix": shared_prefix,
    "chats": chats,
    "answers": answers,
}


@dataclass
class Outcome:
    """The outcome of a load."""

    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    right: int = 0
    waits: list[float] = field(default_factory=list)  # of whole requests
    gaps: list[float] = field(default_factory=list)


class Client:
    """Sends a load's requests, the next when one has ended."""

    def __init__(self, engine: Engine, runner: TimedRunner, load: Load, outcome: Outcome) -> None:
        self._engine = engine
        self._runner = runner
        self._left = list(load.requests)
        self._num_running = 0
        self._outcome = outcome
        self._error: Exception | None = None
        self._done = threading.Event()

    def send_all(self, at_once: int) -> None:
        """Sends them all, a bounded number at a time, and waits for the end."""
        self._runner.may_begin.clear()
        for _ in range(at_once):
            self._send()
        self._runner.may_begin.set()
        self._done.wait()
        if self._error is not None:
            raise self._error

    def _send(self) -> None:
        self._num_running += 1
        self._engine.submit_to(self._left.pop(0), self._reader())

    def _reader(self) -> Callable[[Event], None]:
        began = self._runner.seconds
        last = began

        def read(event: Event) -> None:
            nonlocal last
            now, outcome = self._runner.seconds, self._outcome
            if isinstance(event, TextDelta):
                if last > began:
                    outcome.gaps.append(now - last)
                last = now
            elif isinstance(event, Failed):
                self._error = event.error
                self._done.set()
            elif isinstance(event, Finished):
                outcome.waits.append(now - began)
                outcome.tokens += event.usage.completion_tokens
                self._end()

        return read

    def _end(self) -> None:
        self._num_running -= 1
        if self._left:
            self._send()
        elif not self._num_running:
            self._done.set()


def run(
    runner: TimedRunner, tokenizer: Tokenizer, config: EngineConfig, name: str, seeds: int
) -> Outcome:
    """All of a load's seeds, each on an engine with an empty cache."""
    outcome = Outcome()

    def clock() -> float:
        return runner.seconds

    for seed in range(seeds):
        began = runner.seconds
        with Engine(runner, tokenizer, config, clock=clock, timer=clock) as engine:
            load = LOADS[name](engine, random.Random(f"{name} {seed}"))
            client = Client(engine, runner, load, outcome)
            client.send_all(load.at_once)
            stats = engine.stats()
        outcome.seconds += runner.seconds - began
        outcome.steps += stats.num_steps
        outcome.drafted += stats.num_drafted_tokens
        outcome.right += stats.num_accepted_tokens
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--load", action="append", choices=list(LOADS))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--max-draft-len", type=int, default=16)
    parser.add_argument("--max-tokens-per-step", type=int, default=256)
    args = parser.parse_args()
    file = open_model(args.model)
    cpu_runner = CpuRunner(file)
    runner, tokenizer = TimedRunner(cpu_runner), read_tokenizer(file)
    print(f"{'load':14} {'rate':>6} {'wait':>6} {'right':>6} {'steps':>6} {'gap':>6} {'p95':>6}")
    for name in args.load or LOADS:
        without, drafting = (
            run(
                runner,
                tokenizer,
                EngineConfig(max_draft_len=length, max_tokens_per_step=args.max_tokens_per_step),
                name,
                args.seeds,
            )
            for length in (0, args.max_draft_len)
        )
        rate = drafting.tokens / drafting.seconds * without.seconds / without.tokens
        wait = sum(drafting.waits) / sum(without.waits)
        gaps = sorted(drafting.gaps)
        middle, late = (1e3 * gaps[int(share * len(gaps))] for share in (0.5, 0.95))
        print(
            f"{name:14} {rate:6.3f} {wait:6.3f} {drafting.right / max(1, drafting.drafted):6.3f}"
            f" {drafting.steps / without.steps:6.3f} {middle:6.1f} {late:6.1f}"
        )
    cpu_runner.close()


if __name__ == "__main__":
    main()
