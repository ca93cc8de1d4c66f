"""When joining bytes by the tokens that they make is the same as joining them by pairs.

A merge list (Sennrich et al. 2016) ranks pairs of tokens; ``tiktoken`` ranks the tokens that
result, and joins any two neighbours whose bytes are a token. The two agree where every token,
encoded alone by the pairs, becomes that one token: whatever two neighbours are found next to each
other inside a text are then found so inside their token, too, so they are the token's own pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_NUM_BYTES = 256
_IntArray = npt.NDArray[np.int64]


def ranked_tokens(left: Sequence[bytes], right: Sequence[bytes]) -> list[bytes] | None:
    """The tokens that byte-level merges make, best first; None where ranks of tokens would not
    give what the pairs give.

    Args:
        left, right: the two parts of each merge, best merge first.
    """
    index = {bytes([byte]): byte for byte in range(_NUM_BYTES)}
    results = [a + b for a, b in zip(left, right, strict=True)]
    for result in results:
        index.setdefault(result, len(index))
    num_merges = len(results)
    missing = -1
    parts = np.array(
        [[index.get(a, missing) for a in left], [index.get(b, missing) for b in right]], np.int64
    ).reshape(2, num_merges)
    made = np.fromiter(map(index.__getitem__, results), np.int64, num_merges)
    # When a token is made first, as a place in the list; -1: bytes.
    first = np.full(len(index), -1, np.int64)
    places = np.arange(num_merges)
    tokens, first_places = np.unique(made, return_index=True)
    if len(tokens) and tokens[0] < _NUM_BYTES:
        return None
    first[tokens] = first_places
    if (parts < 0).any() or (first[parts] >= places).any():
        return None  # a part that nothing makes, or is made later
    children = np.zeros((2, len(index)), np.int64)
    children[:, tokens] = parts[:, first_places]
    if not _are_reached(children, first, parts):
        return None
    return list(index)[_NUM_BYTES:]


def _are_reached(children: _IntArray, first: _IntArray, parts: _IntArray) -> bool:
    """Whether no listed merge joins the two parts of a token across their border before both are
    whole.

    Parts are taken apart at the border, the later made one first, which gives all pairs of
    neighbours that ever meet there. A pair that meets is joined if its merge comes before those
    that make either neighbour part of something larger; of equals, the leftmost comes first.
    """
    num_tokens = len(first)
    keys = parts[0] * num_tokens + parts[1]
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    if (sorted_keys[1:] == sorted_keys[:-1]).any():
        return False
    tokens = np.arange(_NUM_BYTES, num_tokens)
    left, right = children[0, tokens], children[1, tokens]
    left_end = first[tokens]  # when the neighbour becomes part of something larger
    right_end = left_end
    while True:
        whole = (left < _NUM_BYTES) & (right < _NUM_BYTES)
        left, right, left_end, right_end = (
            each[~whole] for each in (left, right, left_end, right_end)
        )
        if not len(left):
            return True
        splits_left = first[left] > first[right]
        left_end = np.where(splits_left, first[left], left_end)
        right_end = np.where(splits_left, right_end, first[right])
        left, right = (
            np.where(splits_left, children[1, left], left),
            np.where(splits_left, right, children[0, right]),
        )
        wanted = left * num_tokens + right
        at = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
        merge = np.where(sorted_keys[at] == wanted, order[at], np.iinfo(np.int64).max)
        if (
            (merge < np.minimum(left_end, right_end))
            | ((merge == right_end) & (right_end < left_end))
        ).any():
            return False


def lists_all_pairs(left: Sequence[bytes], right: Sequence[bytes]) -> bool:
    """Whether the merges are those of a vocabulary that was made for ``tiktoken``: all pairs of
    tokens that make a token, by the rank of the token that they make."""
    tokens = {bytes([byte]) for byte in range(_NUM_BYTES)}
    last = b""
    for a, b in zip(left, right, strict=True):
        if a + b != last:
            last = a + b
            if last in tokens:
                return False  # its pairs are in two places
            tokens.add(last)
    num_pairs = sum(
        token[:cut] in tokens and token[cut:] in tokens
        for token in tokens
        for cut in range(1, len(token))
    )
    return num_pairs == len(set(zip(left, right, strict=True))) == len(left)


def tiktoken_ranks(
    tokens: Sequence[bytes], left: Sequence[bytes], right: Sequence[bytes], *, ignores_merges: bool
) -> list[bytes] | None:
    """The merged tokens, best first, where ``tiktoken`` encodes by them as the merges ask for; None
    where it is not certain to.

    Args:
        tokens: the vocabulary's ordinary tokens.
        ignores_merges: a piece that is a token as a whole is that token, whatever the merges say.
    """
    ranked = ranked_tokens(left, right)
    if ranked is None and ignores_merges and lists_all_pairs(left, right):
        ranked = list(dict.fromkeys(a + b for a, b in zip(left, right, strict=True)))
    if ranked is None or not ignores_merges:
        return ranked
    known = set(ranked)
    return ranked if all(len(each) < 2 or each in known for each in tokens) else None
