"""Reads GGUF model files: metadata at once, tensors as views of the mapped file.

The layout is that of the GGUF specification, versions 2 and 3, little-endian: a header, key-value
metadata, tensor descriptions, then tensor data aligned to ``general.alignment``. Everything that
the file says about itself is checked against its size before it is used, so a truncated or a
foreign file ends in a typed error and never in a wild read.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import MetadataValue, ModelFile
from ramet.runtime.model.files.tensor import GgufTensor
from ramet.runtime.model.files.unified import unify_tensors

_MAGIC = b"GGUF"
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_MAX_ARRAY_DEPTH = 4

_STRING_TYPE = 8
_ARRAY_TYPE = 9
_SCALARS: dict[int, tuple[struct.Struct, str]] = {
    0: (struct.Struct("<B"), "<u1"),
    1: (struct.Struct("<b"), "<i1"),
    2: (struct.Struct("<H"), "<u2"),
    3: (struct.Struct("<h"), "<i2"),
    4: (struct.Struct("<I"), "<u4"),
    5: (struct.Struct("<i"), "<i4"),
    6: (struct.Struct("<f"), "<f4"),
    7: (struct.Struct("<?"), "?"),
    10: (struct.Struct("<Q"), "<u8"),
    11: (struct.Struct("<q"), "<i8"),
    12: (struct.Struct("<d"), "<f8"),
}
_PART_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class TensorType:
    """A storage type of tensors: ``block_len`` values in ``block_bytes`` bytes."""

    name: str
    block_len: int
    block_bytes: int


TENSOR_TYPES: Mapping[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    20: TensorType("IQ4_NL", 32, 18),
    23: TensorType("IQ4_XS", 256, 136),
    30: TensorType("BF16", 1, 2),
    39: TensorType("MXFP4", 32, 17),
}
"""The tensor types that Ramet reads, by their number in the file."""


class GgufFile(ModelFile):
    """A GGUF file, mapped read-only; of a split model, all its parts, by the path of the first.

    Raises ``ModelLoadError`` for a path that can't be read and for a file that is not GGUF or is
    cut short, ``UnsupportedModelError`` for a sound file that Ramet doesn't read.
    """

    def __init__(self, path: str | Path, *, _is_part: bool = False) -> None:
        self.path = Path(path)
        self._buffer = map_file(self.path)
        cursor = _Cursor(self._buffer, self.path)
        num_tensors, num_values = _read_header(cursor)
        self.metadata: dict[str, MetadataValue] = {}
        for _ in range(num_values):
            key = cursor.string()
            if key in self.metadata:
                raise cursor.corrupt(f"metadata key {key!r} occurs twice")
            self.metadata[key] = cursor.value(cursor.u32())
        self.tensors: dict[str, GgufTensor] = self._read_tensors(cursor, num_tensors)
        self._parts: list[GgufFile] = []
        if not _is_part and self.integer("split.count", 1) > 1:
            self._read_parts()
        if not _is_part and isinstance(name := self.metadata.get("general.architecture"), str):
            unify_tensors(self, name)

    def drop_cached(self) -> None:
        """Unmaps the file's pages from memory; the system reads them again when they are used."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for file in (self, *self._parts):
                file._buffer.madvise(mmap.MADV_DONTNEED)

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that identify this model file, cheap at any file size.

        A hash of the file's size, of everything before the tensor data and of samples spread
        evenly over the tensor data. It catches another model, another quantisation and a cut
        copy; it is no defence against a file that was forged to collide.
        """
        if self._parts:
            whole = "".join(file._fingerprint() for file in (self, *self._parts))
            return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()
        return self._fingerprint()

    def _fingerprint(self) -> str:
        size = len(self._buffer)
        digest = hashlib.blake2b(size.to_bytes(8, "little"), digest_size=16)
        digest.update(self._buffer[: self._data_start])
        sample_len, num_samples = 4096, 256
        stride = max(sample_len, (size - self._data_start) // num_samples)
        for start in range(self._data_start, size, stride):
            digest.update(self._buffer[start : start + sample_len])
        digest.update(self._buffer[max(self._data_start, size - sample_len) :])
        return digest.hexdigest()

    def _read_parts(self) -> None:
        """Adds the tensors of a split model's other files."""
        count = self.integer("split.count")
        match = _PART_NAME.fullmatch(self.path.name)
        if match is None or int(match[3]) != count:
            raise ModelLoadError(
                f"{self.path}: one part of {count}; its name must end in -00001-of-{count:05}.gguf"
            )
        if int(match[2]) != 1 or self.integer("split.no") != 0:
            first = self.path.with_name(f"{match[1]}-{1:05}-of-{match[3]}.gguf")
            raise ModelLoadError(f"{self.path}: one part of a split model; open the first: {first}")
        for number in range(1, count):
            path = self.path.with_name(f"{match[1]}-{number + 1:05}-of-{match[3]}.gguf")
            part = GgufFile(path, _is_part=True)
            if part.integer("split.no") != number or part.integer("split.count") != count:
                raise ModelLoadError(f"{path}: not part {number + 1} of {count} of its model")
            if twice := self.tensors.keys() & part.tensors.keys():
                raise ModelLoadError(f"{path}: the tensor {min(twice)!r} is in another part, too")
            self.tensors |= part.tensors
            self._parts.append(part)
        total = self.integer("split.tensors.count", len(self.tensors))
        if total != len(self.tensors):
            raise ModelLoadError(f"{self.path}: {total} tensors in all, and {len(self.tensors)}")

    def _read_tensors(self, cursor: _Cursor, num_tensors: int) -> dict[str, GgufTensor]:
        described = [_read_tensor_description(cursor) for _ in range(num_tensors)]
        alignment = self.integer("general.alignment", _DEFAULT_ALIGNMENT)
        if alignment <= 0 or alignment % 8:
            raise cursor.corrupt(f"general.alignment is {alignment}, not a multiple of 8")
        self._data_start = min(
            -(-cursor.position // alignment) * alignment, len(self._buffer)
        )  # a file without tensors may end before the padding
        tensors: dict[str, GgufTensor] = {}
        for name, type_id, shape, offset in described:
            if name in tensors:
                raise cursor.corrupt(f"tensor {name!r} occurs twice")
            tensors[name] = self._view(cursor, name, type_id, shape, offset)
        return tensors

    def _view(
        self, cursor: _Cursor, name: str, type_id: int, shape: tuple[int, ...], offset: int
    ) -> GgufTensor:
        kind = TENSOR_TYPES.get(type_id)
        if kind is None:
            known = ", ".join(each.name for each in TENSOR_TYPES.values())
            raise UnsupportedModelError(
                f"{self.path}: tensor {name!r} is stored as {_type_name(type_id)}, which Ramet "
                f"doesn't read; use a file with only {known}"
            )
        row_len = shape[-1]
        if row_len % kind.block_len:
            raise cursor.corrupt(f"tensor {name!r} has rows of {row_len}, not whole {kind.name}")
        row_bytes = row_len // kind.block_len * kind.block_bytes
        num_rows = 1
        for size in shape[:-1]:
            num_rows *= size
        start = self._data_start + offset
        if start + num_rows * row_bytes > len(self._buffer):
            raise ModelLoadError(
                f"{self.path}: cut short: tensor {name!r} ends at byte "
                f"{start + num_rows * row_bytes} of {len(self._buffer)}; fetch the file again"
            )
        data = np.frombuffer(self._buffer, np.uint8, num_rows * row_bytes, start)
        return GgufTensor(name, kind.name, shape, data.reshape(num_rows, row_bytes))


def map_file(path: Path) -> mmap.mmap:
    """The file, mapped read-only; ``ModelLoadError`` if that can't be."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelLoadError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ModelLoadError(f"{path}: a directory, not a file") from None
    except ValueError:
        raise ModelLoadError(f"{path}: an empty file, not a model") from None
    except OSError as error:
        raise ModelLoadError(f"{path}: can't be read: {error.strerror or error}") from error


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    """(number of tensors, number of metadata values)."""
    magic = cursor.take(4, "the header")
    if magic != _MAGIC:
        raise ModelLoadError(
            f"{cursor.path}: not a GGUF file (it begins with {magic!r}, not {_MAGIC!r})"
        )
    version = cursor.u32()
    if version not in (2, 3):
        if version & 0xFFFF == 0:
            raise UnsupportedModelError(f"{cursor.path}: a big-endian GGUF file; convert it")
        raise UnsupportedModelError(f"{cursor.path}: GGUF version {version}; Ramet reads 2 and 3")
    return cursor.u64(), cursor.u64()


def _read_tensor_description(cursor: _Cursor) -> tuple[str, int, tuple[int, ...], int]:
    """(name, type number, shape with the outermost dimension first, offset in the data)."""
    name = cursor.string()
    num_dimensions = cursor.u32()
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise cursor.corrupt(f"tensor {name!r} has {num_dimensions} dimensions")
    shape = tuple(cursor.u64() for _ in range(num_dimensions))[::-1]
    if 0 in shape:
        raise cursor.corrupt(f"tensor {name!r} has the shape {shape}")
    return name, cursor.u32(), shape, cursor.u64()


def _type_name(type_id: int) -> str:
    from gguf.constants import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(type_id).name)
    except ValueError:
        return f"the unknown type {type_id}"


class _Cursor:
    """Reads values one after another; ``ModelLoadError`` where the file ends too early."""

    def __init__(self, buffer: mmap.mmap, path: Path) -> None:
        self._buffer = buffer
        self.path = path
        self.position = 0

    def take(self, num_bytes: int, what: str = "the metadata") -> bytes:
        end = self.position + num_bytes
        if end > len(self._buffer):
            raise self._cut_short(what)
        data = self._buffer[self.position : end]
        self.position = end
        return data

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def string(self) -> str:
        return self.take(self.u64()).decode("utf-8", "surrogateescape")

    def value(self, type_id: int, depth: int = 0) -> MetadataValue:
        if type_id == _STRING_TYPE:
            return self.string()
        if type_id == _ARRAY_TYPE:
            return self._array(depth)
        scalar = self._scalar(type_id)[0]
        return scalar.unpack(self.take(scalar.size))[0]

    def _array(self, depth: int) -> MetadataValue:
        if depth >= _MAX_ARRAY_DEPTH:
            raise self.corrupt("arrays are nested too deep")
        item_type, num_items = self.u32(), self.u64()
        if item_type == _STRING_TYPE:
            return self._strings(num_items)
        if item_type == _ARRAY_TYPE:
            return [self._array(depth + 1) for _ in range(num_items)]
        scalar, dtype = self._scalar(item_type)
        return np.frombuffer(self.take(scalar.size * num_items), dtype)

    def _strings(self, num_items: int) -> list[str]:
        """A token list is most of the metadata: this loop is what makes opening a file fast."""
        buffer, position = self._buffer, self.position
        unpack_len, end_of_file = _U64.unpack_from, len(self._buffer)
        items: list[str] = []
        append = items.append
        try:
            for _ in range(num_items):
                end = position + 8 + unpack_len(buffer, position)[0]
                if end > end_of_file:
                    raise self._cut_short("a list of strings")
                append(buffer[position + 8 : end].decode("utf-8", "surrogateescape"))
                position = end
        except struct.error:
            raise self._cut_short("a list of strings") from None
        self.position = position
        return items

    def _scalar(self, type_id: int) -> tuple[struct.Struct, str]:
        try:
            return _SCALARS[type_id]
        except KeyError:
            raise self.corrupt(f"unknown metadata type {type_id}") from None

    def _cut_short(self, what: str) -> ModelLoadError:
        return ModelLoadError(
            f"{self.path}: cut short or damaged: the file ends inside {what} "
            f"(it has {len(self._buffer)} bytes); fetch it again"
        )

    def corrupt(self, what: str) -> ModelLoadError:
        return ModelLoadError(f"{self.path}: damaged: {what} (before byte {self.position})")
