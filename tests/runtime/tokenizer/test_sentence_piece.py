"""SentencePiece vocabularies: merges by score, bytes for what has no token, whole added tokens."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.tokenizer import Tokenizer, TokenKind, read_tokenizer

CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<end_of_turn>")
WHOLE = ("\n", "\n\n", "\n\n\n", "  ", "   ", "<h1>", "<h2>")
CHARACTERS = (*"abcdehilort .,:{}\"'é漢字😀", "▁")
MERGED = (
    *("▁t", "he", "▁the", "er", "▁a", "in", "the", "rb", "ba", "ab", "aba", "aa", "aaa", "éa"),
    *('":', '▁"', "字漢", "漢字", "😀a", "▁b▁", "a▁", "il", "lil", "li", "▁.", "bb"),
    "ceded",  # nothing leads to it: no two of its parts are tokens
)


class Vocabulary(ModelFile):
    """A model file that is only a tokenizer."""

    def __init__(self, **changes: object) -> None:
        self.path = Path("tiny.gguf")
        self.tensors = {}
        kinds = [TokenKind.CONTROL] * len(CONTROL) + [TokenKind.USER_DEFINED] * len(WHOLE)
        characters = [char for char in CHARACTERS if char != " "]
        texts = [*CONTROL, *WHOLE, *(f"<0x{byte:02X}>" for byte in range(256))]
        kinds += [TokenKind.BYTE] * 256
        scores = [0.0] * len(texts)
        scores += [-float(rank) for rank in range(len(MERGED))]
        scores += [-1000.0 - rank for rank in range(len(characters))]
        texts += [*MERGED, *characters]
        kinds += [TokenKind.NORMAL] * (len(MERGED) + len(characters))
        self.metadata = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": texts,
            "tokenizer.ggml.token_type": np.array(kinds, np.int32),
            "tokenizer.ggml.scores": np.array(scores, np.float32),
            "tokenizer.ggml.bos_token_id": 2,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.add_space_prefix": False,
        }
        self.metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return read_tokenizer(Vocabulary())


def plainly_encoded(file: Vocabulary, text: str) -> list[int]:
    """The definition, step by step: cut at whole tokens, then join the best pair until none is."""
    texts = file.metadata["tokenizer.ggml.tokens"]
    ids = {text: i for i, text in enumerate(texts)}
    normal = {
        text: float(score)
        for text, score, kind in zip(
            texts,
            file.metadata["tokenizer.ggml.scores"],
            file.metadata["tokenizer.ggml.token_type"],
            strict=True,
        )
        if kind == TokenKind.NORMAL
    }
    result: list[int] = []
    rest = ""

    def flush() -> None:
        parts = list(rest.replace(" ", "▁"))
        while True:
            pairs = [
                (-normal[a + b], i)
                for i, (a, b) in enumerate(itertools.pairwise(parts))
                if a + b in normal
            ]
            if not pairs:
                break
            _, i = min(pairs)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        for part in parts:
            if part in normal:
                result.append(ids[part])
            else:
                result.extend(ids[f"<0x{byte:02X}>"] for byte in part.encode())

    while text:
        whole = max((w for w in WHOLE if text.startswith(w)), key=len, default="")
        if whole:
            flush()
            rest = ""
            result.append(ids[whole])
            text = text[len(whole) :]
        else:
            rest += text[0]
            text = text[1:]
    flush()
    return result


texts = st.text(st.sampled_from('abcdehilrt .,:{"é漢字語😀😁▁\n<12>\x00\x7f\u0085'), max_size=24)


@settings(max_examples=600, deadline=None)
@given(text=st.one_of(texts, st.lists(st.sampled_from((*MERGED, *WHOLE))).map("".join)))
def test_texts_are_encoded_by_the_definition(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == plainly_encoded(Vocabulary(), text)


@pytest.mark.parametrize("text", [*MERGED, *WHOLE, *CHARACTERS, "語", "\x00", ""])
def test_single_tokens_are_encoded_by_the_definition(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == plainly_encoded(Vocabulary(), text)


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_texts_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ")


@settings(max_examples=300, deadline=None)
@given(data=st.one_of(st.binary(max_size=16), texts.map(str.encode)))
def test_bytes_round_trip(tokenizer: Tokenizer, data: bytes) -> None:
    ids = tokenizer.encode_bytes(data)
    assert tokenizer.decode_bytes(ids) == data
    if "▁".encode() not in data and _is_utf8(data):
        assert ids == tokenizer.encode(data.decode())


@settings(max_examples=600, deadline=None)
@given(text=texts, following=texts)
def test_settled_tokens_stand_under_any_continuation(
    tokenizer: Tokenizer, text: str, following: str
) -> None:
    settled = tokenizer.settled_len(text.encode())
    kept, length = [], 0
    for token_id in tokenizer.encode_bytes(text.encode()):
        length += len(tokenizer.token_bytes(token_id))
        if length > settled:
            break
        kept.append(token_id)
    assert tokenizer.encode_bytes((text + following).encode())[: len(kept)] == kept


def test_something_is_settled(tokenizer: Tokenizer) -> None:
    assert tokenizer.settled_len(b'{"a": the') == len(b'{"a":')
    assert tokenizer.settled_len(b"lil") == 0  # joined whatever follows
    assert tokenizer.settled_len(b"b\n\n") == 1
    assert tokenizer.settled_len("é漢".encode()) == len("é".encode())


def test_control_texts_are_text_unless_asked_for(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("<bos>a")) == "<bos>a"
    assert tokenizer.encode("<bos>a", allow_special=True)[0] == tokenizer.bos_id == 2
    assert tokenizer.eos_ids == {1, CONTROL.index("<end_of_turn>")}
    assert tokenizer.adds_bos


def test_the_vocabulary_has_spaces_for_marks_and_bytes(tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer.vocabulary
    assert vocabulary[: len(CONTROL)] == [None] * len(CONTROL)
    assert vocabulary[len(CONTROL) :][: len(WHOLE)] == [text.encode() for text in WHOLE]
    first_byte = len(CONTROL) + len(WHOLE)
    assert vocabulary[first_byte:][:256] == [bytes([byte]) for byte in range(256)]
    assert vocabulary[first_byte + 256 :][: len(MERGED)] == [
        text.replace("▁", " ").encode() for text in MERGED
    ]


def test_a_space_prefix_begins_texts_and_follows_added_tokens() -> None:
    tokenizer = read_tokenizer(Vocabulary(add_space_prefix=True))
    spaced = read_tokenizer(Vocabulary()).encode
    assert tokenizer.encode("the") == spaced(" the")
    assert tokenizer.encode("the", continues=True) == spaced("the")
    assert tokenizer.encode("the<h1>the") == [*spaced(" the"), *spaced("<h1>"), *spaced(" the")]
    pieces = [("<bos>", True), ("the", False)]
    assert tokenizer.encode_pieces(pieces) == [2, *spaced(" the")]
    assert tokenizer.encode_bytes(b"the") == spaced("the")
    assert tokenizer.decode(tokenizer.encode("the")) == "the"
    assert tokenizer.decode_bytes(tokenizer.encode("the")) == b" the"


def test_extra_white_space_is_removed_where_the_vocabulary_says_so() -> None:
    tokenizer = read_tokenizer(Vocabulary(remove_extra_whitespaces=True))
    assert tokenizer.encode(" a b ") == read_tokenizer(Vocabulary()).encode("a b")


def test_a_unigram_vocabulary_gives_the_likeliest_tokens() -> None:
    scores = np.zeros(len(Vocabulary().metadata["tokenizer.ggml.tokens"]), np.float32)
    ids = {text: i for i, text in enumerate(Vocabulary().metadata["tokenizer.ggml.tokens"])}
    scores[len(CONTROL) + len(WHOLE) :] = -20.0
    scores[[ids["ab"], ids["a"], ids["ba"]]] = [-3.0, -2.0, -0.5]
    tokenizer = read_tokenizer(Vocabulary(model="t5", scores=scores))
    assert tokenizer.encode("aba") == [ids["a"], ids["ba"]]


def test_vocabularies_that_contradict_themselves_are_refused() -> None:
    whole = Vocabulary().metadata
    scores = whole["tokenizer.ggml.scores"]
    with pytest.raises(ModelLoadError, match="scores"):
        read_tokenizer(Vocabulary(scores=scores[:-1]))
    repeated = [*whole["tokenizer.ggml.tokens"][:-1], "the"]
    with pytest.raises(ModelLoadError, match="already defined"):
        read_tokenizer(Vocabulary(tokens=repeated))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
