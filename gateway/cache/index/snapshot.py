"""A VectorIndex in one file: written beside the old one and renamed over it, read only when every byte is as written.

    magic · SHA-256 of the rest · head · for each segment: head, FAISS's own form

Heads are msgpack with their length in front. The digest is checked before anything is interpreted, so FAISS never
reads damaged bytes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
import numpy as np

from gateway.cache.index.segment import IndexSegment, faiss
from gateway.cache.index.vector_index import VectorIndex
from gateway.util.private_files import replacing_file

_MAGIC: Final = b"penstock vectors 3\n"
_LENGTH_BYTES: Final = 8

T = TypeVar("T")


class SnapshotUnusable(Exception):
    """The file is missing, damaged, or of another encoder, as the message explains: start with an empty index."""


class _Head(msgspec.Struct, frozen=True):
    encoder_id: str
    dimensions: int
    num_segments: int


class _SegmentHead(msgspec.Struct, frozen=True):
    context: bytes
    num_rows: int
    ids: bytes
    living: bytes


class _Hashed:
    """A file that computes the digest of what is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def write_head(self, head: msgspec.Struct) -> None:
        encoded = msgspec.msgpack.encode(head)
        self.write(len(encoded).to_bytes(_LENGTH_BYTES, "little") + encoded)


def save_vectors(index: VectorIndex, path: Path) -> None:
    """Write the index; blocks for seconds where it is large, and delays no search. Raises OSError."""
    segments = index.segments()
    with replacing_file(path) as file:
        file.write(_MAGIC + bytes(hashlib.sha256().digest_size))
        hashed = _Hashed(file)
        hashed.write_head(_Head(index.encoder_id, index.dimensions, len(segments)))
        for context, segment in segments:
            living = np.packbits(segment.living()).tobytes()
            hashed.write_head(_SegmentHead(context, len(segment), segment.ids.tobytes(), living))
            faiss.write_index(segment.index, faiss.PyCallbackIOWriter(hashed.write))
        file.seek(len(_MAGIC))
        file.write(hashed.digest.digest())


def load_vectors(path: Path, encoder_id: str, dimensions: int) -> VectorIndex:
    """Return the index as it was saved; blocks for seconds where it is large. Raises SnapshotUnusable."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("not a snapshot of this form, or cut short")
            digest, begin = file.read(hashlib.sha256().digest_size), file.tell()
            if hashlib.file_digest(file, "sha256").digest() != digest:
                raise ValueError("damaged: its checksum is another")
            file.seek(begin)
            return _read(file, encoder_id, dimensions)
    except OSError as error:
        raise SnapshotUnusable(f"{path}: {error.strerror}") from error
    except (ValueError, RuntimeError, msgspec.MsgspecError) as error:  # FAISS raises RuntimeError
        raise SnapshotUnusable(f"{path}: {error}") from error


def _read(file: BinaryIO, encoder_id: str, dimensions: int) -> VectorIndex:
    head = _read_head(file, _Head)
    if (head.encoder_id, head.dimensions) != (encoder_id, dimensions):
        stored = f"{head.encoder_id} with {head.dimensions} dimensions"
        raise ValueError(f"it holds vectors of {stored}, not of {encoder_id} with {dimensions}")
    index = VectorIndex(dimensions, encoder_id)
    for _ in range(head.num_segments):
        segment_head = _read_head(file, _SegmentHead)
        faiss_index = faiss.read_index(faiss.PyCallbackIOReader(file.read))
        if segment_head.num_rows < 1 or (faiss_index.d, faiss_index.ntotal) != (dimensions, segment_head.num_rows):
            raise ValueError("a segment has other dimensions or rows than its head says")
        ids = np.frombuffer(segment_head.ids, f"S{len(segment_head.ids) // segment_head.num_rows}")
        living = np.unpackbits(np.frombuffer(segment_head.living, np.uint8), count=segment_head.num_rows).view(np.bool_)
        index.put_segment(segment_head.context, IndexSegment(faiss_index, ids, living))
    return index


def _read_head(file: BinaryIO, kind: type[T]) -> T:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    return msgspec.msgpack.decode(file.read(length), type=kind)
