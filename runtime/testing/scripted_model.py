"""A model runner for tests: its logits follow scripts, and it checks its page tables.

It computes nothing and remembers tokens: its pages hold token ids and positions where a real
runner's hold keys and values. What a row has in context it reads back through the row's page
table, so it works under chunked prefill, prefix reuse, preemption and any batching, and a wrong
or stale page shows immediately as an ``InvariantError``.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.batch import (
    Batch,
    Float32Array,
    Int32Array,
    Overlap,
    PageStorage,
    SampledTokens,
    SamplingRows,
    StepResult,
)
from ramet.runtime.api.errors import InvariantError
from ramet.runtime.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ramet.runtime.model.sampler import Sampler

Sample = Callable[[Float32Array, SamplingRows], SampledTokens]
"""Chooses tokens from logits."""

_FORCED_LOGIT = 60.0
_NOISE_SPAN = 8.0
_NUM_NOISE_ROWS = 16
_MAX_REMEMBERED = 1 << 16
_EMPTY = -1


@dataclass(frozen=True, slots=True)
class Script:
    """The scripted answer to a prompt.

    Attributes:
        pieces: the output, followed by end-of-text. A number is a token id; text or bytes that
            are one token of the vocabulary, control tokens included, are that token; others are
            encoded.
        when: text that the prompt must contain, control tokens' text included; empty: any prompt.
        repeat: say the pieces over and over, and never end.
    """

    pieces: Sequence[str | bytes | int]
    when: str = ""
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    """A script in one vocabulary."""

    token_ids: tuple[int, ...]
    when: bytes
    repeat: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a context has come: ``num_said`` tokens behind a prompt with this answer."""

    answer: _Answer | None
    num_said: int


class ScriptedModel:
    """A ``ModelRunner`` whose logits force tokens.

    A prompt is answered by the first script whose ``when`` it contains. Scripts without ``when``
    answer the prompts that are left, in the order in which their logits are first asked for, the
    last one all the rest. One prompt gets one answer, however often it comes. What no script
    answers is continued by pseudo-random readable text that depends on every token of the context.

    The forced token's logit is far above all others. Those are all different and depend on the
    context, so where a mask forbids the token there is still one definite best choice: a readable
    token before parts of characters, control tokens last.

    Args:
        tokenizer: gives the vocabulary and the end-of-text token.
        scripts: what to say.
        page_size, num_pages: of the pages that ``Batch.page_tables`` names.
        max_context_len: in tokens.
        before_step: called with each batch before it runs; it may raise, to play a fault.
        step_delay_s: seconds that each step takes at least.
        sample: chooses tokens from the logits; None: the compiled sampler.

    Attributes:
        num_steps, num_tokens: steps and tokens that have been run.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        scripts: Iterable[Script] = (),
        *,
        page_size: int = 16,
        num_pages: int = 512,
        max_context_len: int = 8192,
        before_step: Callable[[Batch], None] | None = None,
        step_delay_s: float = 0.0,
        sample: Sample | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        answers = _resolve(scripts, tokenizer)
        self._keyed = [each for each in answers if each.when]
        self._unkeyed = [each for each in answers if not each.when]
        self._num_answered = 0
        self._end_id = tokenizer.eos_id if tokenizer.eos_id is not None else 0
        self._noise = _noise(tokenizer.vocab_size)
        self._handicap = _handicap(tokenizer)
        self._max_context_len = max_context_len
        self._tokens: Int32Array = np.full((num_pages, page_size), _EMPTY, np.int32)
        self._positions: Int32Array = np.full((num_pages, page_size), _EMPTY, np.int32)
        self._places: OrderedDict[bytes, _Place] = OrderedDict()
        self._before_step = before_step
        self._step_delay_s = step_delay_s
        self._sampler: Sampler | None = None
        self._sample = sample
        self.num_steps = 0
        self.num_tokens = 0

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    @property
    def max_context_len(self) -> int:
        return self._max_context_len

    @property
    def page_size(self) -> int:
        return int(self._tokens.shape[1])

    @property
    def num_pages(self) -> int:
        return int(self._tokens.shape[0])

    @property
    def description(self) -> str:
        return "a script"

    @property
    def exact_in_any_batch(self) -> bool:
        return True

    @property
    def has_hidden_states(self) -> bool:
        return True

    @property
    def page_storage(self) -> PageStorage | None:
        return self

    def run(self, batch: Batch, overlap: Overlap | None = None) -> StepResult:
        """See ``ModelRunner.run``; ``InvariantError`` if the batch's page tables are wrong."""
        logits = self.logits(batch)
        if overlap is not None:
            overlap()
        if self._sample is None:
            from ramet.runtime.model.sampler import Sampler  # compiled: slow to import

            self._sampler = Sampler()
            self._sample = self._sampler.sample
        sampled = self._sample(logits, batch.sampling)
        wanted = batch.hidden_tokens
        if not len(wanted):
            return StepResult(sampled)
        return StepResult(
            sampled, scripted_states(batch.token_ids[wanted], batch.positions[wanted])
        )

    def logits(self, batch: Batch) -> Float32Array:
        """A step without sampling: logits [L, vocab_size]."""
        if self._before_step is not None:
            self._before_step(batch)
        if self._step_delay_s:
            time.sleep(self._step_delay_s)
        self.num_steps += 1
        self.num_tokens += batch.num_tokens
        for source, target, num_tokens in batch.page_copies:
            self._tokens[target, :num_tokens] = self._tokens[source, :num_tokens]
            self._positions[target, :num_tokens] = self._positions[source, :num_tokens]
        self._write(batch)
        logits = np.empty((len(batch.logit_tokens), self.vocab_size), np.float32)
        rows = np.searchsorted(batch.row_starts, batch.logit_tokens, side="right") - 1
        for row in range(batch.num_rows):
            context = self._context(batch, row)
            for index in np.flatnonzero(rows == row):
                length = int(batch.positions[batch.logit_tokens[index]]) + 1
                steered = bool(
                    batch.sampling.mask_rows[index] >= 0
                    or batch.sampling.bias_starts[index] < batch.sampling.bias_starts[index + 1]
                )
                scored = bool(batch.sampling.targets[index] >= 0)
                place = self._find_place(context[:length], steered=steered, scored=scored)
                self._fill_logits(logits[index], context[:length], place)
        return logits

    @property
    def page_format(self) -> str:
        """Tokens, then positions."""
        return "scripted tokens[token] positions[token]"

    def read_page(self, page: int) -> bytes:
        """A page's tokens and positions."""
        tokens, positions = self._tokens[page], self._positions[page]
        return bytes(tokens.tobytes() + positions.tobytes())

    def write_page(self, page: int, data: bytes) -> None:
        """Puts back what ``read_page`` gave; ValueError if the size is another."""
        stored = np.frombuffer(data, np.int32)
        if len(stored) != 2 * self.page_size:
            raise ValueError(f"a page has {8 * self.page_size} bytes, not {len(data)}")
        self._tokens[page], self._positions[page] = stored.reshape(2, -1)

    def prepare_ahead(self) -> bool:
        return False

    def close(self) -> None:
        """Ends the sampler's threads, if there are any."""
        if self._sampler is not None:
            self._sampler.close()

    def continuation(self, prompt_token_ids: Sequence[int], num_tokens: int) -> list[int]:
        """The greedy output behind a prompt that no script answers: what ``run`` must lead to,
        computed without pages or batches."""
        history = list(prompt_token_ids)
        logits = np.empty(self.vocab_size, np.float32)
        for _ in range(num_tokens):
            self._fill_logits(logits, np.array(history, np.int32), None)
            history.append(int(logits.argmax()))
        return history[len(prompt_token_ids) :]

    def _write(self, batch: Batch) -> None:
        """Stores the batch's tokens; each must have a slot of its own."""
        row_of_token = np.repeat(np.arange(batch.num_rows), np.diff(batch.row_starts))
        if np.any((batch.token_ids < 0) | (batch.token_ids >= self.vocab_size)):
            raise InvariantError("a token id is not in the vocabulary")
        places = batch.positions // self.page_size
        has_place = (places >= 0) & (places < batch.page_tables.shape[1])
        pages = batch.page_tables[row_of_token, np.where(has_place, places, 0)]
        if not np.all(has_place & (pages >= 0) & (pages < self.num_pages)):
            raise InvariantError("a token's position has no page in its row's page table")
        slots = pages * self.page_size + batch.positions % self.page_size
        if len(np.unique(slots)) < len(slots):
            raise InvariantError("two tokens of one step have the same slot in a page")
        self._tokens.reshape(-1)[slots] = batch.token_ids
        self._positions.reshape(-1)[slots] = batch.positions

    def _context(self, batch: Batch, row: int) -> Int32Array:
        """The row's tokens up to the step's end, read back through its page table."""
        start, end = int(batch.row_starts[row]), int(batch.row_starts[row + 1])
        length = int(batch.context_lens[row])
        new = batch.positions[start:end]
        if not np.array_equal(new, np.arange(length - len(new), length)):
            raise InvariantError(f"row {row}: its positions don't end at its context length")
        pages = batch.page_tables[row, : -(-length // self.page_size)]
        if np.any((pages < 0) | (pages >= self.num_pages)):
            raise InvariantError(f"row {row}: its page table is shorter than its context")
        stored = self._positions[pages].reshape(-1)[:length]
        if not np.array_equal(stored, np.arange(length)):
            wrong = int(np.flatnonzero(stored != np.arange(length))[0])
            raise InvariantError(
                f"row {row}: page {pages[wrong // self.page_size]} doesn't hold position {wrong}"
            )
        return self._tokens[pages].reshape(-1)[:length]

    def _find_place(self, context: Int32Array, *, steered: bool, scored: bool) -> _Place | None:
        key = _key(context)
        place = self._places.get(key)
        if place is None:
            place = self._continued(context, steered=steered)
            if place is None:
                if scored:
                    return None
                place = _Place(self._choose(context), 0)
        self._places[key] = place
        self._places.move_to_end(key)
        if len(self._places) > _MAX_REMEMBERED:
            self._places.popitem(last=False)
        return place

    def _continued(self, context: Int32Array, *, steered: bool) -> _Place | None:
        """The place one token further than a known one, if that is how this context came to be."""
        place = self._places.get(_key(context[:-1]))
        if place is None:
            return None
        forced = self._forced(place)
        # Unless something steered the sampler away from the forced token, a context that
        # continues with another token is a longer prompt.
        as_forced = forced is None or forced == context[-1] or forced == self._end_id
        return _Place(place.answer, place.num_said + 1) if as_forced or steered else None

    def _choose(self, context: Int32Array) -> _Answer | None:
        text = self._tokenizer.decode_bytes(context.tolist(), skip_special=False)
        for each in self._keyed:
            if each.when in text:
                return each
        if not self._unkeyed:
            return None
        chosen = self._unkeyed[min(self._num_answered, len(self._unkeyed) - 1)]
        self._num_answered += 1
        return chosen

    def _forced(self, place: _Place | None) -> int | None:
        if place is None or place.answer is None:
            return None
        output = place.answer.token_ids
        if place.num_said < len(output):
            return output[place.num_said]
        if place.answer.repeat and output:
            return output[place.num_said % len(output)]
        return self._end_id

    def _fill_logits(self, row: Float32Array, context: Int32Array, place: _Place | None) -> None:
        code = zlib.crc32(np.ascontiguousarray(context, "<i4").tobytes())
        noise = self._noise[code % _NUM_NOISE_ROWS]
        shift = code // _NUM_NOISE_ROWS % len(noise)
        row[: len(noise) - shift] = noise[shift:]
        row[len(noise) - shift :] = noise[:shift]
        row += self._handicap
        forced = self._forced(place)
        if forced is not None:
            row[forced] = _FORCED_LOGIT


def scripted_states(token_ids: Int32Array, positions: Int32Array) -> Float32Array:
    """The model's hidden states, [N, 8]: made up, but no two tokens or positions have the same."""
    waves = np.outer(token_ids + 1, np.arange(1, 9)) + 0.1 * positions[:, None]
    return np.cos(waves).astype(np.float32)


def _resolve(scripts: Iterable[Script], tokenizer: Tokenizer) -> list[_Answer]:
    single: dict[bytes, int] = {}
    for token_id in range(tokenizer.vocab_size):
        single.setdefault(tokenizer.token_bytes(token_id), token_id)
    answers = []
    for each in scripts:
        ids: list[int] = []
        for piece in each.pieces:
            if isinstance(piece, int):
                ids.append(piece)
                continue
            data = piece.encode() if isinstance(piece, str) else piece
            ids += [single[data]] if data in single else tokenizer.encode_bytes(data)
        answers.append(_Answer(tuple(ids), each.when.encode(), each.repeat))
    return answers


def _noise(vocab_size: int) -> Float32Array:
    """Rows of the same different values in fixed random orders."""
    values = np.linspace(-_NOISE_SPAN, _NOISE_SPAN, vocab_size, dtype=np.float32)
    rows = np.tile(values, (_NUM_NOISE_ROWS, 1))
    shuffled: npt.NDArray[np.float32] = np.random.default_rng(0).permuted(rows, axis=1)
    return shuffled


def _handicap(tokenizer: Tokenizer) -> Float32Array:
    """Added to the noise: puts unreadable tokens below readable ones, control tokens lowest."""
    handicap = np.zeros(tokenizer.vocab_size, np.float32)
    for token_id, token in enumerate(tokenizer.vocabulary):
        if token is None:
            handicap[token_id] = -4.5 * _NOISE_SPAN
        elif not _is_readable(token):
            handicap[token_id] = -2.25 * _NOISE_SPAN
    return handicap


def _is_readable(token: bytes) -> bool:
    try:
        return token.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _key(context: Int32Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(context).tobytes(), digest_size=16).digest()
