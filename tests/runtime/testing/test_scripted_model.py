"""The scripted model: it says its scripts in any batching, and a wrong page table is an error."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.batch import Batch, Float32Array, SamplingRows
from ramet.runtime.api.errors import InvariantError
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import ChatTemplate

TOKENIZER = scripted_tokenizer(b"\xf0\x9f", "DEF", "HI")
PAGE_SIZE = 4
NUM_PAGES = 64


@dataclass
class Row:
    """A sequence as a scheduler would keep it: all its tokens, how many are computed, its pages."""

    token_ids: list[int]
    pages: list[int]
    num_computed: int = 0
    num_new: int = field(default=0)


def sampling(num_rows: int, *, masked: bool = False, scored: bool = False) -> SamplingRows:
    """Greedy rows without any feature."""
    empty = np.zeros(0, np.int32)
    starts = np.zeros(num_rows + 1, np.int32)
    mask_width = (TOKENIZER.vocab_size + 31) // 32
    return SamplingRows(
        temperature=np.zeros(num_rows, np.float32),
        top_p=np.ones(num_rows, np.float32),
        top_k=np.zeros(num_rows, np.int32),
        min_p=np.zeros(num_rows, np.float32),
        presence_penalty=np.zeros(num_rows, np.float32),
        frequency_penalty=np.zeros(num_rows, np.float32),
        repetition_penalty=np.ones(num_rows, np.float32),
        seeds=np.zeros(num_rows, np.uint64),
        positions=np.zeros(num_rows, np.int64),
        targets=np.full(num_rows, 0 if scored else -1, np.int32),
        mask_rows=np.full(num_rows, 0 if masked else -1, np.int32),
        masks=np.full((1, mask_width), -1, np.int32),
        num_logprobs=np.full(num_rows, -1, np.int32),
        bias_starts=starts,
        bias_token_ids=empty,
        bias_values=np.zeros(0, np.float32),
        seen_starts=starts,
        seen_token_ids=empty,
        seen_output_counts=empty,
    )


def step(
    model: ScriptedModel,
    rows: Sequence[Row],
    *,
    chunk: int = 1000,
    copies: Sequence[tuple[int, int, int]] = (),
    masked: bool = False,
) -> Float32Array:
    """Runs up to ``chunk`` new tokens of each row; logits of those rows that are then complete."""
    token_ids, positions, starts, lens, wanted = [], [], [0], [], []
    for row in rows:
        new = row.token_ids[row.num_computed : row.num_computed + chunk]
        token_ids += new
        positions += range(row.num_computed, row.num_computed + len(new))
        row.num_computed += len(new)
        lens.append(row.num_computed)
        starts.append(len(token_ids))
        if row.num_computed == len(row.token_ids):
            wanted.append(len(token_ids) - 1)
    tables = np.full((len(rows), max(len(row.pages) for row in rows)), -1, np.int32)
    for table, row in zip(tables, rows, strict=True):
        table[: len(row.pages)] = row.pages
    return model.logits(
        Batch(
            token_ids=np.array(token_ids, np.int32),
            positions=np.array(positions, np.int32),
            row_starts=np.array(starts, np.int32),
            context_lens=np.array(lens, np.int32),
            page_tables=tables,
            page_copies=np.array(copies, np.int32).reshape(-1, 3),
            logit_tokens=np.array(wanted, np.int32),
            sampling=sampling(len(wanted), masked=masked),
        )
    )


def generate(
    model: ScriptedModel,
    prompt: Sequence[int],
    num_tokens: int,
    *,
    chunk: int = 1000,
    page: int = 0,
) -> list[int]:
    """Greedy output of one sequence alone, on pages from ``page`` on."""
    row = Row(list(prompt), list(range(page, page + 16)))
    for _ in range(num_tokens):
        logits = step(model, [row], chunk=chunk)
        while len(logits) == 0:
            logits = step(model, [row], chunk=chunk)
        row.token_ids.append(int(logits[0].argmax()))
    return row.token_ids[len(prompt) :]


def new_model(*scripts: Script) -> ScriptedModel:
    return ScriptedModel(TOKENIZER, scripts, page_size=PAGE_SIZE, num_pages=NUM_PAGES)


def said(token_ids: Sequence[int]) -> list[bytes]:
    return [TOKENIZER.token_bytes(i) for i in token_ids]


def test_a_script_is_said_piece_by_piece_and_ended() -> None:
    model = new_model(Script(["DEF", "G", "HI", b"\xf0\x9f", "<|reserved|>", 65]))
    output = generate(model, TOKENIZER.encode("a prompt"), 7)
    expected = [b"DEF", b"G", b"HI", b"\xf0\x9f", b"<|reserved|>", b"A", b"<|im_end|>"]
    assert said(output) == expected
    assert output[-1] == TOKENIZER.eos_id


def test_pieces_that_are_no_token_are_spelt() -> None:
    model = new_model(Script(["xyz", b"\xff\xfe"]))
    assert said(generate(model, [65], 5)) == [b"x", b"y", b"z", b"\xff", b"\xfe"]


def test_scripts_are_chosen_by_what_the_prompt_contains() -> None:
    model = new_model(Script(["A"], when="weather"), Script(["B"], when="<|im_start|>tool"))
    template = ChatTemplate.of(TOKENIZER)
    first = template.encode([{"role": "user", "content": "the weather?"}])
    second = template.encode([{"role": "tool", "content": "42"}])
    assert said(generate(model, second, 1)) == [b"B"]
    assert said(generate(model, first, 1, page=20)) == [b"A"]


def test_other_scripts_answer_in_order_and_one_prompt_always_alike() -> None:
    model = new_model(Script(["A"]), Script(["B"]))
    prompts = [TOKENIZER.encode(text) for text in ("one", "two", "six", "one")]
    assert [said(generate(model, prompt, 2))[0] for prompt in prompts] == [b"A", b"B", b"B", b"A"]


def test_a_prompt_that_extends_an_answered_one_is_a_new_prompt() -> None:
    model = new_model(Script(["A"]), Script(["B"]))
    assert said(generate(model, TOKENIZER.encode("hello"), 2))[0] == b"A"
    assert said(generate(model, TOKENIZER.encode("hello!"), 2))[0] == b"B"


def test_a_script_can_repeat_forever() -> None:
    model = new_model(Script(["\n", "x"], repeat=True))
    assert b"".join(said(generate(model, [65], 9))) == b"\nx\nx\nx\nx\n"


def test_where_the_forced_token_is_forbidden_there_is_one_best_choice() -> None:
    model = new_model(Script(["A", "B"]))
    row = Row([70], [0, 1])
    logits = step(model, [row], masked=True)[0]
    assert logits.argmax() == ord("A")
    logits[ord("A")] = -np.inf
    assert (logits == logits.max()).sum() == 1
    row.token_ids.append(int(logits.argmax()))
    assert step(model, [row], masked=True)[0].argmax() == ord("B")


def test_without_scripts_the_output_depends_on_every_token() -> None:
    model = new_model()
    prompt = TOKENIZER.encode("some prompt")
    output = generate(model, prompt, 12)
    assert output == model.continuation(prompt, 12)
    assert TOKENIZER.decode(output).isprintable()
    changed = [prompt[0] + 1, *prompt[1:]]
    assert generate(model, changed, 12, page=20) != output


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 255), min_size=1, max_size=30),
    st.integers(1, 7),
    st.permutations(range(20)),
)
def test_chunks_and_pages_do_not_change_the_output(
    prompt: list[int], chunk: int, pages: list[int]
) -> None:
    model = new_model()
    row = Row(list(prompt), pages)
    while len(row.token_ids) < len(prompt) + 5:
        logits = step(model, [row], chunk=chunk)
        if len(logits):
            row.token_ids.append(int(logits[0].argmax()))
    assert row.token_ids[len(prompt) :] == model.continuation(prompt, 5)


def test_rows_share_pages_and_copies_of_pages() -> None:
    model = new_model()
    prompt = [1, 2, 3, 4, 5, 6]
    first = Row(list(prompt), [10, 11, 12])
    step(model, [first])
    second = Row([*prompt[:5], 9, 9], [10, 20, 21], num_computed=5)
    logits = step(model, [second], copies=[(11, 20, 1)])
    assert logits[0].argmax() == model.continuation(second.token_ids, 1)[0]
    first.token_ids.append(7)
    both = [first, second]
    second.token_ids.append(8)
    for row, row_logits in zip(both, step(model, both), strict=True):
        assert row_logits.argmax() == model.continuation(row.token_ids, 1)[0]


def test_wrong_page_tables_are_noticed() -> None:
    model = new_model()
    row = Row([1, 2, 3, 4, 5], [3, 4])
    step(model, [row])
    with pytest.raises(InvariantError, match="position 0"):
        step(model, [Row([*row.token_ids, 6], [5, 4], num_computed=5)])
    with pytest.raises(InvariantError, match="no page"):
        step(model, [Row([*row.token_ids, 6, 7, 8, 9], [3, 4], num_computed=5)])
    twins = [Row([*row.token_ids, 6], [3, 4], num_computed=5) for _ in range(2)]
    with pytest.raises(InvariantError, match="same slot"):
        step(model, twins)
    with pytest.raises(InvariantError, match="not in the vocabulary"):
        step(model, [Row([TOKENIZER.vocab_size], [3])])
    with pytest.raises(InvariantError, match="hold position 1"):
        step(model, [Row([*row.token_ids, 6], [3, 3], num_computed=5)])


def test_a_page_given_to_another_row_is_noticed() -> None:
    model = new_model()
    victim = Row([1, 2, 3, 4, 5], [3, 4])
    step(model, [victim])
    thief = Row(list(range(20, 29)), [6, 7, 3])
    step(model, [thief])
    victim.token_ids.append(6)
    with pytest.raises(InvariantError, match="page 3"):
        step(model, [victim])


def test_drafts_are_answered_token_by_token() -> None:
    model = new_model(Script(["A", "B", "C"]))
    row = Row([70, 71], [0, 1])
    step(model, [row])
    draft = [ord("A"), ord("B"), ord("x")]
    batch = Batch(
        token_ids=np.array(draft, np.int32),
        positions=np.array([2, 3, 4], np.int32),
        row_starts=np.array([0, 3], np.int32),
        context_lens=np.array([5], np.int32),
        page_tables=np.array([[0, 1]], np.int32),
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=np.array([0, 1, 2], np.int32),
        sampling=sampling(3),
    )
    best = model.logits(batch).argmax(1).tolist()
    assert best[:2] == [ord("B"), ord("C")]


def test_scoring_a_prompt_answers_nothing() -> None:
    model = new_model(Script(["A"]), Script(["B"]))
    batch = Batch(
        token_ids=np.array([5, 6], np.int32),
        positions=np.array([0, 1], np.int32),
        row_starts=np.array([0, 2], np.int32),
        context_lens=np.array([2], np.int32),
        page_tables=np.array([[0]], np.int32),
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=np.array([0], np.int32),
        sampling=sampling(1, scored=True),
    )
    assert model.logits(batch).max() < 10
    assert said(generate(model, [5, 6], 1, page=8)) == [b"A"]


def test_a_fault_can_be_played() -> None:
    steps = itertools.count()

    def fail_at_the_second(batch: Batch) -> None:
        if next(steps) == 1:
            raise RuntimeError("the device is gone")

    model = ScriptedModel(TOKENIZER, before_step=fail_at_the_second, page_size=PAGE_SIZE)
    row = Row([1, 2], [0])
    step(model, [row])
    row.token_ids.append(3)
    with pytest.raises(RuntimeError, match="gone"):
        step(model, [row])
    row.num_computed = 2
    assert len(step(model, [row])) == 1
    assert (model.num_steps, model.num_tokens) == (2, 3)


def test_the_tokenizer_is_a_real_one() -> None:
    ids = TOKENIZER.encode(' the anther {"a":true}')
    assert b" the" in said(ids)
    assert len(ids) < len(' the anther {"a":true}')
    assert b"DEF" not in said(TOKENIZER.encode("DEF"))
    assert TOKENIZER.special_id("<|reserved|>") not in TOKENIZER.eos_ids
