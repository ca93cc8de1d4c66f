"""Every kind of vocabulary: ids and texts equal those of the library that the model was made with.

Real vocabularies come from packages, and their tests skip without them.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.api.events import TokenInfo
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.model.files.huggingface_tokenizer import tokenizer_metadata
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.files.tensor import GgufTensor
from ramet.runtime.parsers import OutputStream
from ramet.runtime.tokenizer import Tokenizer, TokenKind, read_tokenizer
from ramet.runtime.tokenizer.pretokenizers import PRE_TOKENIZERS
from ramet.runtime.tokenizer.sentence_piece import sentence_piece_model

WORDS = (
    *("the", " The", "don't", "I'LL", "naïve", "Ångström", "Straße", "e\u0301", "ﬁn", "x86_64"),
    *(
        "Привет",
        "мир",
        "Ελληνικά",
        "العربية",
        "עברית",
        "हिन्दी",
        "ไทยแลนด์",
        "日本語",
        "中文",
        "한국어",
    ),
    *("😀", "👩‍👩‍👧‍👦", "🇫🇷", "½", "Ⅷ", "٣٤٥", "12345", " 7", "３", "''", "=>", "//", "...", "!?"),
    *("<s>", "</s>", "[INST]", "<think>", "<0x0A>", "▁", "▁▁", "Ġ", "Ċ", "{", '"a":', "\\n"),
    *(" ", "  ", "   ", " " * 17, "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\x00"),
)

texts = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
    st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text("aab .=\n▁é", max_size=24),
)
"""Multilingual texts, and texts of any characters."""


class Folder(ModelFile):
    """A model folder that holds nothing but a tokenizer."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        rows = np.zeros((size, 4), np.uint8)
        self.tensors = {
            "token_embd.weight": GgufTensor("token_embd.weight", "F32", (size, 1), rows)
        }
        self.metadata = tokenizer_metadata(path, {}, size)


def write_json(path: Path, library: Library, **settings: Any) -> Folder:
    """A folder with a ``tokenizer.json``."""
    library.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return Folder(path, library.get_vocab_size() + 3)


def package_data(package: str, *names: str) -> Path:
    """A file of an installed package; skips the test without it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed (pip install ramet[vocabularies])")
    path = Path(spec.origin).parent.joinpath(*names)
    if not path.is_file():
        pytest.skip(f"{package} has no {names[-1]} any more")
    return path


def mistral_file(name: str) -> Path:
    return package_data("mistral_common", "data", name)


@functools.cache
def qwen_ranks(count: int) -> list[bytes]:
    """The first tokens of Qwen's vocabulary, best first."""
    lines = package_data("dashscope", "resources", "qwen.tiktoken").read_bytes().splitlines()
    return [base64.b64decode(line.split()[0]) for line in lines[:count]]


def all_pairs(ranks: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The merges of a ``tiktoken`` vocabulary: every split of a token into two, by its rank."""
    known = set(ranks)
    return [
        (token[:cut], token[cut:])
        for token in ranks
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]


def one_pair_each(ranks: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The merges that training gave: a token's last two parts when earlier merges are done."""
    rank = {token: i for i, token in enumerate(ranks)}
    merges = []
    for token in ranks:
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            pairs = [
                (rank.get(parts[i] + parts[i + 1], len(rank)), i) for i in range(len(parts) - 1)
            ]
            best, i = min(pairs)
            assert best < rank[token]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges


def spelled(data: bytes) -> str:
    """Bytes in GPT-2's alphabet: printable ones as they are, the others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    characters = [chr(b if b in printable else next(others)) for b in range(256)]
    return "".join(characters[byte] for byte in data)


def byte_level(
    family: str,
    merges_of: Callable[[Sequence[bytes]], Iterable[tuple[bytes, bytes]]] = one_pair_each,
    *,
    ignore_merges: bool = False,
    add_prefix_space: bool = False,
) -> Library:
    """Part of Qwen's vocabulary behind the pre-tokenizer of a family."""
    ranks = qwen_ranks(12_000)
    vocab = {spelled(token): i for i, token in enumerate(ranks)}
    merges = [(spelled(a), spelled(b)) for a, b in merges_of(ranks)]
    library = Library(models.BPE(vocab, merges, ignore_merges=ignore_merges))
    rule = PRE_TOKENIZERS[family]
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=False),
        ]
    )
    if rule.normal_form:
        library.normalizer = normalizers.NFC()
    library.decoder = decoders.ByteLevel()
    return with_added(library)


def with_added(library: Library, **options: Any) -> Library:
    library.add_special_tokens(
        [AddedToken(text, normalized=False, **options) for text in ("<s>", "</s>", "[INST]")]
    )
    library.add_tokens([AddedToken("<think>", normalized=False)])
    return library


@functools.cache
def _mistral_pieces() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Mistral's first vocabulary as a merge list: all splits of a piece, by its score."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = sentencepiece.SentencePieceProcessor(model_file=str(mistral_file("tokenizer.model.v1")))
    vocab = {model.id_to_piece(i): i for i in range(model.vocab_size())}
    ranked = sorted(vocab, key=lambda piece: (-model.get_score(vocab[piece]), vocab[piece]))
    merges = [
        (piece[:cut], piece[cut:])
        for piece in ranked
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    return vocab, merges


def space_marked(kind: str) -> Library:
    """A vocabulary with space marks and byte fallback, as folders of Llama 2 (``prepend``), later
    Mistral (``first``) and Gemma (``none``) have it."""
    vocab, merges = _mistral_pieces()
    library = Library(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    replace = normalizers.Replace(" ", "▁")
    tail = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if kind == "prepend":
        library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    elif kind == "first":
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        library.normalizer = replace
        library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    library.decoder = decoders.Sequence(
        tail if kind == "none" else [*tail, decoders.Strip(" ", 1, 0)]
    )
    return with_added(library)


def unigram(kind: str) -> Library:
    """A small Unigram vocabulary, trained on the spot."""
    library = Library(models.Unigram())
    library.normalizer = normalizers.NFKC() if kind == "nfkc" else None
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    corpus = ["the cat sat on the mat and the dog ate the fish", "ab abc abcd", "é 日本 12 {}"] * 9
    trainer = trainers.UnigramTrainer(
        vocab_size=120, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    library.train_from_iterator(corpus, trainer)
    if kind == "bytes":
        model = json.loads(library.to_str())["model"]
        vocab = [tuple(each) for each in model["vocab"]]
        vocab += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
        library.model = models.Unigram(vocab, unk_id=model["unk_id"], byte_fallback=True)
        library.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    else:
        library.decoder = decoders.Metaspace(prepend_scheme="always")
    return with_added(library)


JSON_KINDS: dict[str, Callable[[], Library]] = {
    "qwen2": lambda: byte_level("qwen2"),
    "gpt-2": lambda: byte_level("gpt-2"),
    "llama3": lambda: byte_level("llama-bpe", all_pairs, ignore_merges=True),
    "gpt-4o": lambda: byte_level("gpt-4o", all_pairs),
    "deepseek-v3": lambda: byte_level("deepseek-v3"),
    "falcon": lambda: byte_level("falcon"),
    "prefix": lambda: byte_level("tekken", add_prefix_space=True),
    "reversed": lambda: byte_level("qwen2", lambda ranks: one_pair_each(ranks)[::-1]),
    "llama2": lambda: space_marked("prepend"),
    "mistral": lambda: space_marked("first"),
    "gemma": lambda: space_marked("none"),
    "unigram": lambda: unigram("plain"),
    "unigram-nfkc": lambda: unigram("nfkc"),
    "unigram-bytes": lambda: unigram("bytes"),
}
BY_TIKTOKEN = {"qwen2", "gpt-2", "llama3"}

fuzzed = settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture(scope="module", params=sorted(JSON_KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def library(kind: str) -> Library:
    return JSON_KINDS[kind]()


@pytest.fixture(scope="module")
def tokenizer(kind: str, library: Library, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = write_json(tmp_path_factory.mktemp(kind), library, bos_token="<s>", eos_token="</s>")
    return read_tokenizer(folder)


def reference_ids(library: Library, text: str, *, specials: bool) -> list[int]:
    library.encode_special_tokens = not specials
    return library.encode(text, add_special_tokens=False).ids


def test_what_tiktoken_encodes_equally_goes_through_it(kind: str, tokenizer: Tokenizer) -> None:
    assert (type(tokenizer._encoder).__name__ == "SplitEncoder") == (kind in BY_TIKTOKEN)


@fuzzed
@given(text=texts)
def test_texts_have_the_ids_of_the_library(
    library: Library, tokenizer: Tokenizer, text: str
) -> None:
    assert tokenizer.encode(text) == reference_ids(library, text, specials=False)
    found = tokenizer.encode(text, allow_special=True)
    assert found == reference_ids(library, text, specials=True)


@fuzzed
@given(parts=st.lists(st.one_of(texts, st.sampled_from(["<s>", "</s>", "[INST]"])), max_size=5))
def test_prompts_with_control_tokens_have_the_ids_of_the_library(
    library: Library, tokenizer: Tokenizer, parts: list[str]
) -> None:
    text = "".join(parts)
    cut = [part for part in re.split(r"(<s>|</s>|\[INST\])", text) if part]
    pieces = [(part, part in tokenizer.control_texts) for part in cut]
    assert tokenizer.encode_pieces(pieces) == reference_ids(library, text, specials=True)


@fuzzed
@given(text=texts)
def test_ids_have_the_text_of_the_library(
    library: Library, tokenizer: Tokenizer, text: str
) -> None:
    ids = reference_ids(library, text, specials=True)
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)
    whole = library.decode(ids, skip_special_tokens=False)
    assert tokenizer.decode(ids, skip_special=False) == whole


def streamed(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """What a client sees of an output, token by token."""
    stream = OutputStream(SamplingParams(), tokenizer.special_ids)
    shown = [stream.feed_token(TokenInfo(i, tokenizer.token_bytes(i))).text for i in ids]
    return "".join(shown) + stream.finish().text


@fuzzed
@given(prompt=texts, text=texts, data=st.data())
def test_an_output_that_is_streamed_continues_its_prompt(
    tokenizer: Tokenizer, prompt: str, text: str, data: st.DataObject
) -> None:
    head, ids = tokenizer.encode(prompt), tokenizer.encode(text, continues=True)
    whole = tokenizer.decode(head + ids)
    # A prompt that ends inside a character, or shows nothing, has no text of its own.
    if head and "\ufffd" not in whole and tokenizer.decode(head):
        assert tokenizer.decode(head) + streamed(tokenizer, ids) == whole
    cut = data.draw(st.integers(0, len(ids)))
    parts = [tokenizer.decode_bytes(ids[:cut]), tokenizer.decode_bytes(ids[cut:])]
    assert b"".join(parts).decode("utf-8", "replace") == streamed(tokenizer, ids)


@fuzzed
@given(text=texts)
def test_exact_ids_have_exactly_the_bytes(tokenizer: Tokenizer, kind: str, text: str) -> None:
    data = text.encode()
    if kind in ("unigram", "unigram-nfkc"):  # they can't spell what they were not trained on
        data = bytes(each for each in data if each in b"abcdhtes ")
        if any(not tokenizer.encode_bytes(bytes([each])) for each in set(data)):
            return
    assert tokenizer.decode_bytes(tokenizer.encode_bytes(data), skip_special=False) == data


@fuzzed
@given(text=texts, following=texts)
def test_settled_tokens_stand_under_any_continuation(
    tokenizer: Tokenizer, kind: str, text: str, following: str
) -> None:
    if kind in ("unigram", "unigram-nfkc"):
        return
    # This vocabulary puts a space behind an added token, so that such a text is spelled otherwise.
    assume(kind != "llama2" or "<think>" not in text + following)
    settled = tokenizer.settled_len(text.encode())
    kept, length = [], 0
    for token_id in tokenizer.encode_bytes(text.encode()):
        length += len(tokenizer.token_bytes(token_id))
        if length > settled:
            break
        kept.append(token_id)
    assert tokenizer.encode_bytes((text + following).encode())[: len(kept)] == kept


def test_grammars_see_the_bytes_of_every_token(kind: str, tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer.vocabulary
    written = ("▁".encode(), "Ġ".encode(), "Ċ".encode(), b"<0x0A>")
    assert not any(mark in (token or b"") for token in vocabulary for mark in written)
    assert b" a" in vocabulary
    if not kind.startswith("unigram") or kind == "unigram-bytes":
        assert {bytes([byte]) for byte in range(256)} <= set(vocabulary)
    for text in ("<s>", "</s>", "[INST]"):
        token_id = tokenizer.special_id(text)
        assert token_id is not None
        assert vocabulary[token_id] is None
    assert vocabulary[tokenizer.special_id("<think>") or 0] == b"<think>"
    assert vocabulary[-1] is None
    assert tokenizer.kinds[-1] is TokenKind.UNUSED


MISTRAL_MODELS = [
    "tokenizer.model.v1",
    "mistral_instruct_tokenizer_240216.model.v2",
    "mistral_instruct_tokenizer_240323.model.v3",
    "mistral_instruct_tokenizer_241114.model.v7",
]


@pytest.mark.parametrize("name", MISTRAL_MODELS)
def test_a_sentencepiece_model_gives_the_ids_of_its_library(name: str, tmp_path: Path) -> None:
    file = mistral_file(name)
    reference = SentencePieceProcessor(model_file=str(file))
    (tmp_path / "tokenizer.model").write_bytes(file.read_bytes())
    tokenizer = read_tokenizer(Folder(tmp_path, reference.vocab_size() + 4))
    as_gguf = read_tokenizer(_gguf_of(reference))

    @fuzzed
    @given(text=texts, prompt=texts)
    def equal(text: str, prompt: str) -> None:
        ids = reference.encode(text)
        assert tokenizer.encode(text) == as_gguf.encode(text) == ids
        assert tokenizer.decode(ids) == as_gguf.decode(ids) == reference.decode(ids)
        assert tokenizer.decode_bytes(tokenizer.encode_bytes(text.encode())) == text.encode()
        both = tokenizer.encode(prompt) + tokenizer.encode(text, continues=True)
        assert tokenizer.decode(both) == reference.decode(both)

    equal()
    control = tokenizer.encode_pieces([("<s>", True), ("Hi", False), ("</s>", True), (" x", False)])
    assert control == [1, *reference.encode("Hi"), 2, *reference.encode(" x")]


def _gguf_of(reference: Any) -> ModelFile:
    kinds = [
        TokenKind.UNKNOWN
        if reference.is_unknown(i)
        else TokenKind.CONTROL
        if reference.is_control(i)
        else TokenKind.BYTE
        if reference.is_byte(i)
        else TokenKind.NORMAL
        for i in range(reference.vocab_size())
    ]
    file = ModelFile()
    file.path, file.tensors = Path("mistral.gguf"), {}
    file.metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [reference.id_to_piece(i) for i in range(len(kinds))],
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.scores": np.array(
            [reference.get_score(i) for i in range(len(kinds))], np.float32
        ),
        "tokenizer.ggml.add_space_prefix": True,
    }
    return file


@pytest.mark.parametrize("name", ["tekken_240718.json", "tekken_240911.json"])
def test_tekken_gives_the_ids_of_its_library(name: str, tmp_path: Path) -> None:
    file = mistral_file(name)
    tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    reference = tekken.Tekkenizer.from_file(file)
    (tmp_path / "tekken.json").write_bytes(file.read_bytes())
    tokenizer = read_tokenizer(Folder(tmp_path, reference.n_words))
    assert (tokenizer.bos_id, tokenizer.adds_bos) == (reference.bos_id, True)
    assert tokenizer.special_id("[INST]") == reference.get_special_token("[INST]")

    @fuzzed
    @given(text=texts)
    def equal(text: str) -> None:
        ids = reference.encode(text, bos=False, eos=False)
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == text

    equal()


@functools.cache
def _small_document() -> bytes:
    return unigram("plain").to_str().encode()


def damaged(data: bytes, draw: Callable[..., Any]) -> bytes:
    """The same file with a few bytes changed, cut or doubled."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, min(len(changed) - 1, 4096)))
        change = draw(st.sampled_from(["byte", "cut", "twice"]))
        if change == "byte":
            changed[at] = draw(st.integers(0, 255))
        elif change == "cut":
            del changed[at : at + draw(st.integers(1, 64))]
        else:
            changed[at:at] = changed[at : at + 16]
    return bytes(changed)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_damaged_tokenizer_files_are_read_or_are_load_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sound = {
        "tokenizer.model": sentence_piece_model(
            ["a", "▁", "ab", "<unk>"],
            [TokenKind.NORMAL] * 3 + [TokenKind.UNKNOWN],
            [-1.0, -2.0, -3.0, 0.0],
            is_unigram=data.draw(st.booleans()),
            adds_prefix=True,
            collapses_spaces=False,
            character_map=b"",
        ),
        "tokenizer.json": _small_document(),
        "tekken.json": json.dumps(
            {
                "config": {
                    "pattern": PRE_TOKENIZERS["tekken"].patterns[0],
                    "default_vocab_size": 262,
                    "default_num_special_tokens": 4,
                },
                "vocab": [
                    {"rank": i, "token_bytes": base64.b64encode(token).decode()}
                    for i, token in enumerate([*(bytes([b]) for b in range(256)), b"ab", b"abc"])
                ],
            }
        ).encode(),
    }
    name = data.draw(st.sampled_from(sorted(sound)))
    path = tmp_path_factory.mktemp("damaged")
    (path / name).write_bytes(damaged(sound[name], data.draw))
    message = str(path)
    try:
        tokenizer = read_tokenizer(Folder(path, 300))
        tokenizer.decode(tokenizer.encode("ab a"))
    except ModelLoadError as error:
        message = str(error)
    assert str(path) in message
