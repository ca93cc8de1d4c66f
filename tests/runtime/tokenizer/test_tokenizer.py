"""Text to tokens and back: as the model's own tokenizer does it, safely, at any size."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as ReferenceTokenizer

from ramet.runtime.api.errors import InvalidParameterError, UnsupportedModelError
from ramet.runtime.model.files.byte_alphabet import decode_alphabet
from ramet.runtime.model.files.gguf import GgufFile
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import Tokenizer, TokenKind, read_tokenizer
from ramet.runtime.tokenizer.byte_level import ByteLevelMerger
from ramet.runtime.tokenizer.encoders import SplitEncoder
from ramet.runtime.tokenizer.pretokenizers import MAX_SPACE_RUN, PRE_TOKENIZERS, pre_tokenizer

TEXTS = [
    *("", " ", "\n", "Hello world", "  leading  double   spaces\n\n\n\ttabs\t\t x", "trailing   "),
    *("1234567890 12.5e-7 ½ ² Ⅷ ٣٤٥", "  1  22   333 a1b2", "don't we'll I've he'd DON'T I'M"),
    *("日本語のテキストと中文和한국어", "Привет, мир! Ελληνικά العربية עברית हिन्दी ไทย"),
    *("😀👩‍👩‍👧‍👦🇫🇷 emoji", "def f(x):\n    return x**2  # comment\n", "a\u00a0b\u3000c\u2003 d"),
    *("\r\n\r\nwin\r\n", "naïve café Ångström ﬁ e\u0301", '{"a": [1, 2.5, null], "b": "x\\ny"}'),
    *("\x00\x01\x7f control", "a" * 500, " " * 300 + "x", "foo.bar_baz-qux/quux@x.com?d=e&f=1"),
]
POOL = "abc XYZ 012 \n\t.,'\"!?-_é ñ ü 漢字 かな 한글 Жш 😀 ½² \u00a0 𝒳 's 'll \r e\u0301"


def corpus(num_random: int) -> list[str]:
    rng = random.Random(5)
    ranges = [(0x20, 0x24F), (0x370, 0x1FFF), (0x3000, 0xD7FF), (0x10000, 0x1FFFF)]
    return [
        *TEXTS,
        *("".join(rng.choices(POOL, k=rng.randint(1, 60))) for _ in range(num_random)),
        *(
            "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(30))
            for _ in range(num_random // 4)
        ),
    ]


@pytest.fixture(scope="module")
def smollm2_file() -> GgufFile:
    return GgufFile(locate_model("smollm2"))


@pytest.fixture(scope="module")
def smollm2(smollm2_file: GgufFile) -> Tokenizer:
    return read_tokenizer(smollm2_file)


def reference(file: GgufFile) -> ReferenceTokenizer:
    texts = file.metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in file.metadata["tokenizer.ggml.merges"]]
    result = ReferenceTokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    result.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    result.decoder = decoders.ByteLevel()
    kinds = file.metadata["tokenizer.ggml.token_type"]
    result.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False)
            for text, kind in zip(texts, kinds, strict=True)
            if kind == TokenKind.CONTROL
        ]
    )
    return result


@pytest.mark.model
def test_smollm2_encodes_as_the_reference_library_does(
    smollm2: Tokenizer, smollm2_file: GgufFile
) -> None:
    expected = reference(smollm2_file)
    for text in corpus(4000):
        ids = smollm2.encode(text)
        assert ids == expected.encode(text).ids, text
        if all(
            0xF1 not in char.encode() and char not in "\x04\x06\x13\x14\x16\x1d" for char in text
        ):
            assert smollm2.decode(ids) == text


@pytest.mark.model
def test_bytes_without_a_token_are_left_out_as_the_reference_does(
    smollm2: Tokenizer, smollm2_file: GgufFile
) -> None:
    text = "a \x04 b\U000f0000c"
    assert smollm2.encode(text) == reference(smollm2_file).encode(text).ids
    with pytest.raises(InvalidParameterError, match="can't spell"):
        smollm2.encode_bytes(text.encode())


@pytest.mark.model
def test_special_tokens_are_made_only_where_the_caller_says(
    smollm2: Tokenizer, smollm2_file: GgufFile
) -> None:
    text = "<|im_start|>user\nhi<|im_end|><|im_end|>\n"
    with_special = smollm2.encode(text, allow_special=True)
    assert with_special == reference(smollm2_file).encode(text).ids
    assert with_special.count(2) == 2
    plain = smollm2.encode(text)
    assert not set(plain) & smollm2.special_ids
    assert smollm2.decode(plain) == text
    assert smollm2.decode(with_special) == "user\nhi\n"
    assert smollm2.decode(with_special, skip_special=False) == text


@pytest.mark.model
def test_the_vocabulary_has_no_text_for_special_tokens(smollm2: Tokenizer) -> None:
    vocabulary = smollm2.vocabulary
    assert len(vocabulary) == smollm2.vocab_size == 49152
    assert {i for i, token in enumerate(vocabulary) if token is None} == smollm2.special_ids
    assert (smollm2.eos_id, smollm2.eos_ids, smollm2.bos_id) == (2, {0, 2}, 1)
    assert smollm2.token_bytes(2) == b"<|im_end|>"
    assert smollm2.special_id("<|im_end|>") == 2
    assert smollm2.special_id("the") is None


@pytest.mark.model
@pytest.mark.parametrize("unit", ["a", " ", "\n", "!", "1", "ab ", " \n", "é"])
def test_huge_and_monotonous_texts_take_linear_time(smollm2: Tokenizer, unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        best = float("inf")
        for _ in range(2):
            start = time.perf_counter()
            ids = smollm2.encode(text)
            best = min(best, time.perf_counter() - start)
        assert smollm2.decode(ids) == text
        return best

    assert seconds(1_200_000) < 40 * max(seconds(120_000), 1e-3)


@pytest.mark.model
def test_a_white_space_run_is_cut_only_when_it_is_very_long() -> None:
    tokenizer = scripted_tokenizer()
    text = "x" + " " * (3 * MAX_SPACE_RUN + 5) + "y" + "\n" * MAX_SPACE_RUN + "z"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_round_trips(text: str) -> None:
    tokenizer = scripted_tokenizer()
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert tokenizer.decode(tokenizer.encode(text)) == whole
    assert tokenizer.decode(tokenizer.encode_pieces([(text, False)])) == whole


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=24))
def test_any_bytes_round_trip(data: bytes) -> None:
    tokenizer = scripted_tokenizer()
    assert tokenizer.decode_bytes(tokenizer.encode_bytes(data)) == data


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30))
def test_well_formed_bytes_are_encoded_like_text(text: str) -> None:
    tokenizer = scripted_tokenizer()
    if all(not 0xD800 <= ord(char) < 0xE000 for char in text):
        assert tokenizer.encode_bytes(text.encode()) == tokenizer.encode(text)


def spelled(data: bytes) -> str:
    """Bytes in GPT-2's alphabet: printable ones as they are, the others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    characters = [chr(b if b in printable else next(others)) for b in range(256)]
    return "".join(characters[byte] for byte in data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_the_byte_alphabet_is_gpt2s(data: bytes) -> None:
    assert decode_alphabet([spelled(data), "", spelled(data[::-1])]) == [
        data,
        b"",
        data[::-1],
    ]


def test_a_character_outside_the_byte_alphabet_is_named() -> None:
    with pytest.raises(KeyError, match="日"):
        decode_alphabet(["ok", "日"])


def test_the_bos_token_comes_only_when_asked_for() -> None:
    tokenizer = scripted_tokenizer()
    assert tokenizer.bos_id is not None
    assert tokenizer.encode("a", add_bos=True) == [tokenizer.bos_id, *tokenizer.encode("a")]


def test_ids_outside_the_vocabulary_are_refused() -> None:
    tokenizer = scripted_tokenizer()
    for token_id in (-1, tokenizer.vocab_size):
        with pytest.raises(InvalidParameterError, match="there is no token"):
            tokenizer.decode([token_id])


def test_user_defined_tokens_are_text_that_is_always_one_token() -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), b"<think>", b"<|end|>"]
    kinds = [TokenKind.NORMAL] * 256 + [TokenKind.USER_DEFINED, TokenKind.CONTROL]
    merger = ByteLevelMerger(tokens, kinds, [], pre_tokenizer("qwen2"))
    encoder = SplitEncoder(merger, {"<|end|>": 257}, {"<think>": 256})
    tokenizer = Tokenizer(tokens=tokens, kinds=kinds, encoder=encoder)
    assert tokenizer.encode("a<think><|end|>") == [97, 256, *b"<|end|>"]
    assert tokenizer.encode("a<think><|end|>", allow_special=True) == [97, 256, 257]
    assert tokenizer.vocabulary[256:] == [b"<think>", None]
    assert tokenizer.decode([256, 257]) == "<think>"


@pytest.mark.model
@pytest.mark.parametrize("name", {rule: name for name, rule in PRE_TOKENIZERS.items()}.values())
def test_every_family_cuts_text_as_the_reference_library_does(
    name: str, smollm2_file: GgufFile
) -> None:
    rule = pre_tokenizer(name)
    expected = reference(smollm2_file)
    expected.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    if rule.normal_form == "NFC":
        expected.normalizer = normalizers.NFC()
    smollm2_file.metadata["tokenizer.ggml.pre"] = name
    tokenizer = read_tokenizer(smollm2_file)
    smollm2_file.metadata["tokenizer.ggml.pre"] = "smollm"
    for text in corpus(200):
        assert tokenizer.encode(text) == expected.encode(text).ids, text


def test_llama3_and_qwen2_differ_in_how_they_cut_numbers() -> None:
    for name, expected in (("llama-bpe", ["123", "45"]), ("qwen2", list("12345"))):
        split = pre_tokenizers.Split(Regex(pre_tokenizer(name).patterns[0]), "isolated")
        assert [piece for piece, _ in split.pre_tokenize_str("12345")] == expected


def test_unknown_tokenizers_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="'nonesuch'"):
        pre_tokenizer("nonesuch")
