"""A VectorIndex in one file: written beside the old one and renamed over it, read only when every byte is as written.

    magic · head · for each context: head, ids, float32 matrix, for each set of cells: head, ids,
    float16 matrix, FAISS' own form · SHA-256

Heads are msgpack with their length in front, and so are ids, in short lists: whoever writes or reads them lets other
threads run in between. The digest is checked before anything is interpreted, so neither FAISS nor anybody else ever
reads damaged bytes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
import numpy as np

from gateway.cache.index.cell_rows import CellRows
from gateway.cache.index.id_rows import IdRows
from gateway.cache.index.partition import Partition
from gateway.cache.index.vector_index import VectorIndex
from gateway.util.private_files import open_private, private_folder

_MAGIC: Final = b"penstock vectors 2\n"
_LENGTH_BYTES: Final = 8
_DIGEST_BYTES: Final = 32
_PIECE_BYTES: Final = 1 << 20
_IDS_AT_ONCE: Final = 1000
_ROWS_AT_ONCE: Final = 250


class SnapshotUnusable(Exception):
    """The file is not there, damaged, or of another encoder; the message says which. Start with an empty index."""


class _Head(msgspec.Struct, frozen=True):
    encoder_id: str
    dimensions: int
    num_contexts: int


class _Context(msgspec.Struct, frozen=True):
    context: bytes
    num_flat: int
    num_cells: int


class _Cells(msgspec.Struct, frozen=True):
    num_rows: int
    made_for: int
    living: bytes


def save_vectors(index: VectorIndex, path: Path) -> None:
    """Write the index. Blocks for seconds where it is large; serving goes on, growing cells wait. Raises OSError."""
    private_folder(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open_private(part, "wb") as file:
            writer = _Writer(file)
            shelves = index.shelves()
            writer.write(_MAGIC)
            writer.head(_Head(index.encoder_id, index.dimensions, len(shelves)))
            for context, shelf in shelves:
                _write_shelf(writer, context, shelf)
            file.write(writer.digest())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load_vectors(path: Path, encoder_id: str, dimensions: int) -> VectorIndex:
    """The index as it was saved. Blocks for seconds where it is large. Raises SnapshotUnusable."""
    try:
        with path.open("rb") as file:
            _check(file)
            return _read(_Reader(file), encoder_id, dimensions)
    except OSError as error:
        raise SnapshotUnusable(f"{path}: {error.strerror}") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise SnapshotUnusable(f"{path}: {error}") from error


def _write_shelf(writer: _Writer, context: bytes, shelf: Partition) -> None:
    with shelf.moving:
        exacts, pieces = _flat_rows(shelf)
        with shelf.lock:
            cells = [(each, each.living.tobytes()) for each in shelf.cells]
        writer.head(_Context(context, len(exacts), len(cells)))
        writer.ids([exacts[begin : begin + _IDS_AT_ONCE] for begin in range(0, len(exacts), _IDS_AT_ONCE)])
        for piece in pieces:
            writer.write(piece)
        for each, living in cells:
            writer.head(_Cells(len(each.exacts), each.made_for, living))
            writer.ids(each.exacts.pieces())
            each.write(writer.write)


def _flat_rows(shelf: Partition) -> tuple[list[bytes], list[bytes]]:
    """Ids and the bytes of their vectors. Copied a few at a time, so that nobody waits for it: of what is removed or
    added meanwhile some may be missing."""
    seen: dict[bytes, None] = {}
    pieces: list[bytes] = []
    begin = 0
    while begin < len(shelf.flat):
        with shelf.lock:
            exacts, rows = shelf.flat.stretch(begin, begin + _ROWS_AT_ONCE)
        is_new = [exact not in seen for exact in exacts]
        pieces.append(rows[is_new].tobytes())
        seen.update(dict.fromkeys(exacts))
        begin += _ROWS_AT_ONCE
    return list(seen), pieces


def _read(reader: _Reader, encoder_id: str, dimensions: int) -> VectorIndex:
    reader.read(len(_MAGIC))
    head = reader.head(_Head)
    if (head.encoder_id, head.dimensions) != (encoder_id, dimensions):
        theirs = f"{head.encoder_id} with {head.dimensions} dimensions"
        raise ValueError(f"it holds vectors of {theirs}, not of {encoder_id} with {dimensions}")
    index = VectorIndex(dimensions, encoder_id)
    for _ in range(head.num_contexts):
        told = reader.head(_Context)
        shelf = index.new_shelf()
        exacts = [exact for piece in reader.ids(told.num_flat).pieces() for exact in piece]
        data = reader.read(4 * dimensions * told.num_flat)
        shelf.flat.extend(exacts, np.frombuffer(data, np.float32).reshape(-1, dimensions))
        for _ in range(told.num_cells):
            cells = reader.head(_Cells)
            living = np.frombuffer(cells.living, np.uint8)
            shelf.cells.append(
                CellRows.read(reader.read, dimensions, cells.made_for, reader.ids(cells.num_rows), living)
            )
        index.put_shelf(told.context, shelf)
    return index


def _check(file: BinaryIO) -> None:
    """Raises ValueError; leaves the file at its begin."""
    remaining = file.seek(0, os.SEEK_END) - _DIGEST_BYTES
    file.seek(0)
    if remaining < len(_MAGIC) or file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("not a snapshot of this form, or cut short")
    file.seek(0)
    digest = hashlib.sha256()
    while remaining > 0 and (piece := file.read(min(_PIECE_BYTES, remaining))):
        digest.update(piece)
        remaining -= len(piece)
    if file.read(_DIGEST_BYTES) != digest.digest():
        raise ValueError("damaged: its checksum is another")
    file.seek(0)


T = TypeVar("T")


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def head(self, head: msgspec.Struct | list[bytes]) -> None:
        encoded = msgspec.msgpack.encode(head)
        self.write(len(encoded).to_bytes(_LENGTH_BYTES, "little"))
        self.write(encoded)

    def ids(self, pieces: Iterable[list[bytes]]) -> None:
        for piece in pieces:
            self.head(piece)
            time.sleep(0)

    def digest(self) -> bytes:
        return self._digest.digest()


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, num_bytes: int) -> bytes:
        return self._file.read(num_bytes)

    def head(self, kind: type[T]) -> T:
        length = int.from_bytes(self.read(_LENGTH_BYTES), "little")
        return msgspec.msgpack.decode(self.read(length), type=kind)

    def ids(self, count: int) -> IdRows:
        found = IdRows()
        while len(found) < count:
            found.extend(self.head(list[bytes]))
            time.sleep(0)
        return found
