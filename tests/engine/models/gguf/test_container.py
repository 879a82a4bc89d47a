"""Damaged and absurd GGUF files: a clear error that names the file, at once and without memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.models.gguf.container import GgufError, GgufFile
from tests.engine.models.gguf.files import close

LARGEST = (1 << 64) - 1
MAX_S = 1.0
MAX_BYTES = 16 << 20


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*, version: int = 3, num_tensors: int = 0, num_keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys)


def tensor(name: str, *, shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(item_type: int, count: int, items: bytes = b"") -> bytes:
    return struct.pack("<IQ", item_type, count) + items


DATA = bytes(4096)
BROKEN = {
    "empty": (b"", "is empty"),
    "other format": (b"PK\3\4" + DATA, "is not a GGUF file"),
    "magic only": (b"GGUF", "is truncated"),
    "version 1": (header(version=1) + DATA, "has version 1; expected 2 or 3"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + DATA, "has big-endian numbers"),
    "tensors without number": (header(num_tensors=LARGEST) + DATA, "claims 18446744073709551615 tensors"),
    "keys without number": (header(num_keys=LARGEST) + DATA, "claims 18446744073709551615 keys"),
    "more keys than bytes": (header(num_keys=16000), "is truncated"),
    "key of a gigabyte": (header(num_keys=1) + struct.pack("<Q", 1 << 30) + DATA, "claims 1073741824 bytes"),
    "string of a gigabyte": (header(num_keys=1) + pair("k", 8, struct.pack("<Q", 1 << 30)) + DATA, "k: claims"),
    "string past the end": (header(num_keys=1) + pair("k", 8, struct.pack("<Q", 4000)), "k: claims 4000 bytes"),
    "string of no UTF-8": (header(num_keys=1) + pair("k", 8, struct.pack("<Q", 2) + b"\xff\xff"), "is not valid UTF-8"),
    "unknown value": (header(num_keys=1) + pair("k", 99, DATA), "k: has a value of the unknown type 99"),
    "nested array": (header(num_keys=1) + pair("k", 9, array(9, 1)) + DATA, "unsupported type 9"),
    "endless array": (header(num_keys=1) + pair("k", 9, array(0, LARGEST)) + DATA, "claims 18446744073709551615 items"),
    "array past the end": (header(num_keys=1) + pair("k", 9, array(12, 2_000_000)) + DATA, "is truncated"),
    "strings past the end": (header(num_keys=1) + pair("k", 9, array(8, 2_000_000)) + DATA, "is truncated"),
    "string items past the end": (
        header(num_keys=1) + pair("k", 9, array(8, 2, struct.pack("<QQ", LARGEST, 1))) + DATA,
        "is truncated",
    ),
    "key twice": (header(num_keys=2) + 2 * pair("k", 0, b"\1") + DATA, "k: is there twice"),
    "alignment of zero": (
        header(num_keys=1) + pair("general.alignment", 4, bytes(4)) + DATA,
        "general.alignment: expected a power of two, got 0",
    ),
    "tensor twice": (header(num_tensors=2) + 2 * tensor("x") + DATA, "x: is there twice"),
    "no dimensions": (header(num_tensors=1) + tensor("x", shape=()) + DATA, "x: has 0 dimensions"),
    "many dimensions": (header(num_tensors=1) + tensor("x", shape=(1,) * 9) + DATA, "x: has 9 dimensions"),
    "no rows": (header(num_tensors=1) + tensor("x", shape=(32, 0)) + DATA, r"x: has the impossible shape \[0, 32\]"),
    "overflowing shape": (
        header(num_tensors=1) + tensor("x", shape=(1 << 33, 1 << 33)) + DATA,
        "x: has the impossible shape",
    ),
    "terabytes": (header(num_tensors=1) + tensor("x", shape=(1 << 20, 1 << 20)) + DATA, "x: ends at byte 4398"),
    "data past the end": (header(num_tensors=1) + tensor("x", shape=(2000,)) + DATA, "x: ends at byte"),
    "offset past the end": (header(num_tensors=1) + tensor("x", offset=1 << 40) + DATA, "x: ends at byte"),
    "offset out of line": (header(num_tensors=1) + tensor("x", offset=1) + DATA, "x: starts at 1"),
    "overlap": (header(num_tensors=2) + tensor("x") + tensor("y", offset=32) + DATA, "y: overlaps x"),
    "unknown type": (header(num_tensors=1) + tensor("x", kind=250) + DATA, "x: has the type 250, which is not read"),
    "unread type": (header(num_tensors=1) + tensor("x", kind=16) + DATA, "x: has the type IQ2_XXS, .* expected F32"),
    "half a block": (header(num_tensors=1) + tensor("x", shape=(48,), kind=8) + DATA, "no whole blocks of Q8_0"),
    "long name": (header(num_tensors=1) + tensor("x" * 1000) + DATA, "a tensor's name: claims 1000 bytes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_at_once(case: str, tmp_path: Path) -> None:
    content, message = BROKEN[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    started_at = time.process_time()

    with pytest.raises(GgufError, match=rf"model\.gguf: .*{message}|model\.gguf: {message}"):
        GgufFile(path)

    assert time.process_time() - started_at < MAX_S
    assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    tracemalloc.stop()


def test_metadata_of_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(num_keys=1) + pair("k", 8, struct.pack("<Q", 3 << 30)))
    with path.open("r+b") as file:
        file.truncate(4 << 30)  # sparse: no such bytes are on disk
    started_at = time.process_time()

    with pytest.raises(GgufError, match="claims 3221225472 bytes"):
        GgufFile(path)

    assert time.process_time() - started_at < MAX_S


def test_a_file_of_zeros_after_its_counts_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(num_tensors=100_000, num_keys=16_000))
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    started_at = time.process_time()

    with pytest.raises(GgufError, match=": is there twice"):
        GgufFile(path)

    assert time.process_time() - started_at < MAX_S


@pytest.mark.parametrize("length", range(8, 700, 61))
def test_a_truncated_file_is_refused(length: int, tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:length])

    with pytest.raises(GgufError, match="truncated"):
        GgufFile(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="cannot be read: No such file"):
        GgufFile(tmp_path / "none.gguf")
    with pytest.raises(GgufError, match="cannot be read: Is a directory"):
        GgufFile(tmp_path)


def written(tmp_path: Path) -> Path:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_array("texts", ["one", "", "drei"])
    writer.add_array("numbers", [1.5, -2.0])
    writer.add_string("text", "ä")
    writer.add_bool("truth", True)
    writer.add_tensor("x", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("y", np.arange(128, dtype=np.float32))
    return close(writer, tmp_path / "model.gguf")


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    file = GgufFile(written(tmp_path))

    assert file.metadata["general.architecture"] == "llama"
    assert (file.metadata["text"], file.metadata["truth"]) == ("ä", True)
    assert file.strings("texts") == ["one", "", "drei"]
    assert file.numbers("numbers") == [1.5, -2.0]
    place = file.tensors["x"]
    assert (place.shape, place.type.name, place.num_bytes) == ((2, 3), "F32", 24)
    assert np.array_equal(np.frombuffer(file.data, np.float32, 6, place.start), np.arange(6))


def test_arrays_of_another_kind_are_refused(tmp_path: Path) -> None:
    file = GgufFile(written(tmp_path))

    with pytest.raises(GgufError, match="texts: expected an array of numbers"):
        file.numbers("texts")
    with pytest.raises(GgufError, match="numbers: expected an array of strings"):
        file.strings("numbers")
    with pytest.raises(GgufError, match="none: is missing"):
        file.strings("none")
    with pytest.raises(GgufError, match="text: expected an array"):
        file.strings("text")
