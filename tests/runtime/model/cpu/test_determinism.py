"""A token's logits depend on its tokens alone, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.kernels.cpu_support.features import best_dot_path, vector_path
from ramet.runtime.model.cpu.runner import CpuRunner

PAGE_SIZE = 16
NUM_PAGES = 400

# Sequences as (sequence whose prefix is reused, full pages of it, own tokens); in order.
TREES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 25), st.integers(1, 150)), min_size=1, max_size=6
)


class Sequence:
    def __init__(self, tokens, pages):
        self.tokens = tokens
        self.pages = pages


def grow_tree(tree, rng):
    """Sequences that share pages as a prefix cache would have them, sorted by page table."""
    sequences = []
    num_pages = 0
    for index, (source, shared, own) in enumerate(tree):
        tokens, pages = [], []
        if index:
            parent = sequences[source % index]
            shared = min(shared, len(parent.tokens) // PAGE_SIZE)
            tokens, pages = parent.tokens[: shared * PAGE_SIZE], parent.pages[:shared]
        tokens = [*tokens, *rng.integers(0, 250, own).tolist()]
        needed = -(-len(tokens) // PAGE_SIZE) - len(pages)
        pages = [*pages, *range(num_pages, num_pages + needed)]
        num_pages += needed
        sequences.append(Sequence(tokens, pages))
    return sequences


def run_alone(runner, batch_of, tokens):
    """Logits behind every token of one sequence, all in one step."""
    pages = range(-(-len(tokens) // PAGE_SIZE))
    return runner.logits(batch_of([(tokens, 0, pages)], all_logits=True)).copy()


def run_together(runner, batch_of, sequences, rng):
    """Computes the tree in random chunks of random sequences; pages once, by who comes first."""
    ready = {}  # page -> tokens in it that are computed, by sequence prefix
    logits = [{} for _ in sequences]
    order = sorted(range(len(sequences)), key=lambda index: sequences[index].pages)
    done = [0] * len(sequences)
    while any(count < len(s.tokens) for count, s in zip(done, sequences, strict=True)):
        rows, owners, claimed = [], [], set()
        for index in order:
            sequence = sequences[index]
            # Skip what another sequence has computed in shared pages.
            while (
                done[index] % PAGE_SIZE == 0
                and done[index] + PAGE_SIZE < len(sequence.tokens)
                and ready.get(sequence.pages[done[index] // PAGE_SIZE]) == PAGE_SIZE
            ):
                done[index] += PAGE_SIZE
            left = len(sequence.tokens) - done[index]
            size = min(left, int(rng.choice([1, 1, 2, 7, 40, 200])))
            pages = sequence.pages[done[index] // PAGE_SIZE : -(-(done[index] + size) // PAGE_SIZE)]
            if size == 0 or rng.random() < 0.2 or claimed & set(pages):
                continue
            claimed |= set(pages)
            rows.append((sequence.tokens[done[index] : done[index] + size], done[index],
                         sequence.pages))  # fmt: skip
            owners.append(index)
        if not rows:
            continue
        result = runner.logits(batch_of(rows, all_logits=True))
        first = 0
        for index, (tokens, start, _) in zip(owners, rows, strict=True):
            for offset in range(len(tokens)):
                logits[index][start + offset] = result[first + offset].copy()
            first += len(tokens)
            done[index] = start + len(tokens)
            for position in range(start, done[index]):
                page = sequences[index].pages[position // PAGE_SIZE]
                ready[page] = max(ready.get(page, 0), position % PAGE_SIZE + 1)
    return logits


LLAMA = {"num_heads": 6, "num_kv_heads": 2, "weight_types": ("Q4_1", "Q8_0")}
GEMMA3 = {"architecture": "gemma3", "num_kv_heads": 1, "head_dim": 64, "window": 40}
MODELS = {"llama": (LLAMA, "bf16"), "llama int8": (LLAMA, "int8"), "gemma3": (GEMMA3, "bf16")}


@pytest.fixture(scope="module", params=MODELS)
def runners(model_factory, request):
    """The same model: one thread; two threads; two without grouping and without tiles."""
    sizes, kv_dtype = MODELS[request.param]
    file = model_factory(**sizes)
    options = [
        {"num_threads": 1},
        {"num_threads": 2},
        {"num_threads": 2, "group_pages": False, "dot_path": vector_path(best_dot_path())},
    ]
    made = [CpuRunner(file, num_pages=NUM_PAGES, kv_dtype=kv_dtype, **each) for each in options]
    yield made
    for runner in made:
        runner.close()


@given(TREES, st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_schedule_gives_the_same_bits(runners, batch_of, tree, seed):
    rng = np.random.default_rng(seed)
    sequences = grow_tree(tree, rng)
    alone, *others = runners
    expected = [run_alone(alone, batch_of, s.tokens) for s in sequences]
    for runner in others:
        together = run_together(runner, batch_of, sequences, rng)
        for sequence, logits in zip(expected, together, strict=True):
            for position, row in logits.items():
                np.testing.assert_array_equal(row, sequence[position])


@pytest.mark.parametrize("page_size", [32, 48, 128, 256])
def test_the_page_size_changes_no_bit(page_size, model_factory, batch_of):
    file = model_factory(num_heads=2, num_kv_heads=1)
    tokens = np.random.default_rng(0).integers(0, 250, 300).tolist()
    small = CpuRunner(file, num_pages=19, num_threads=1)
    large = CpuRunner(file, num_pages=19, page_size=page_size, num_threads=1)
    pages = range(-(-300 // page_size))
    np.testing.assert_array_equal(
        large.logits(batch_of([(tokens, 0, pages)], all_logits=True)),
        small.logits(batch_of([(tokens, 0, range(19))], all_logits=True)),
    )
    small.close()
    large.close()


def test_old_contents_of_a_page_change_no_bit(model_factory, batch_of):
    runner = CpuRunner(model_factory(), num_pages=4, num_threads=1)
    tokens = list(range(40))
    expected = runner.logits(batch_of([(tokens, 0, [0, 1, 2])], all_logits=True)).copy()
    runner.logits(batch_of([(list(range(100, 148)), 0, [2, 1, 0])]))
    again = runner.logits(batch_of([(tokens, 0, [0, 1, 2])], all_logits=True))
    np.testing.assert_array_equal(again, expected)
    runner.close()


def test_tokens_whose_results_are_not_read_change_no_bit(runners, batch_of):
    """The last layer skips them; their keys and values are there for the next step."""
    rng = np.random.default_rng(3)
    first, second = (rng.integers(0, 250, size).tolist() for size in (150, 70))
    for runner in runners:
        full = batch_of([(first, 0, range(10)), (second, 0, range(20, 25))], all_logits=True)
        full.hidden_tokens = np.arange(220, dtype=np.int32)
        logits, states = runner.logits(full).copy(), runner.run(full).hidden_states
        for wanted, hidden in (([149, 219], [149, 180]), ([], [0, 7, 219]), ([3, 60, 151], [])):
            full.logit_tokens = np.array(wanted, np.int32)
            full.hidden_tokens = np.array(hidden, np.int32)
            np.testing.assert_array_equal(runner.logits(full), logits[wanted])
            again = runner.run(full).hidden_states
            np.testing.assert_array_equal(
                [] if again is None else again, states[hidden] if hidden else []
            )
        start = batch_of([(first[:100], 0, range(30, 40))])
        start.logit_tokens = np.zeros(0, np.int32)
        assert runner.logits(start).shape == (0, 250)
        rest = runner.logits(batch_of([(first[100:], 100, range(30, 40))]))
        np.testing.assert_array_equal(rest, logits[149:150])


def test_threads_that_write_neighbouring_tokens_lose_nothing(model_factory, batch_of):
    """Values of two tokens share words. From position 1 on, tasks begin between the two."""
    file = model_factory(num_layers=4, num_heads=16, num_kv_heads=16, head_dim=64, ffn_size=32)
    tokens = np.random.default_rng(7).integers(0, 250, 250).tolist()
    pages = range(16)
    contents = []
    for num_threads, num_times in ((1, 1), (2, 50), (5, 50)):
        runner = CpuRunner(file, num_pages=16, num_threads=num_threads)
        empty = bytes(len(runner.read_page(0)))
        for _ in range(num_times):
            for page in pages:
                runner.write_page(page, empty)
            runner.logits(batch_of([(tokens[:1], 0, pages)]))
            runner.logits(batch_of([(tokens[1:], 1, pages)]))
            contents.append(b"".join(map(runner.read_page, pages)))
        runner.close()
    assert sum(each != contents[0] for each in contents) == 0
