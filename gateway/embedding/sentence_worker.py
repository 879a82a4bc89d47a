"""Command `python -m gateway.embedding.sentence_worker MODEL`: sentence-transformers in a process of its own.

The library imports torch, which takes seconds and hundreds of megabytes, and a crash in it must not end the gateway.
The process reads one JSON list of texts a line. It replies with one JSON line, `WorkerReply`, and behind it the vectors
as 32-bit floats, in the machine's byte order. It ends with its standard input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

INSTALL: Final = "pip install 'penstock[encoders]'"
_texts: Final = msgspec.json.Decoder(list[str])


class WorkerReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line before the vectors."""

    dimensions: int = 0
    num_texts: int = 0
    backend: str = ""
    error: str | None = None


def main(argv: Sequence[str]) -> int:
    """Serve until standard input ends; return 1 when the model cannot be loaded."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no reply
    try:
        model, backend = _load(argv[0])
        dimensions = len(_vectors(model, ["warm up"])[0])
    except Exception as error:  # the libraries raise many kinds; the gateway reports each
        _reply(replies, WorkerReply(error=f"{type(error).__name__}: {error}"))
        return 1
    _reply(replies, WorkerReply(dimensions=dimensions, backend=backend))
    for line in requests:
        try:
            vectors = _vectors(model, _texts.decode(line))
        except Exception as error:
            _reply(replies, WorkerReply(error=f"{type(error).__name__}: {error}"))
        else:
            _reply(replies, WorkerReply(dimensions=dimensions, num_texts=len(vectors)), vectors)
    return 0


def _load(name: str) -> tuple[Any, str]:
    """Return the model and its backend: ONNX where the folder has a graph and the library can run it."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise RuntimeError(f"{error}; {INSTALL}") from error
    has_graph = any(Path(name).glob("onnx/*.onnx")) or (Path(name) / "model.onnx").is_file()
    backend: Literal["onnx", "torch"] = "onnx" if has_graph and find_spec("optimum") is not None else "torch"
    return SentenceTransformer(name, backend=backend, device="cpu"), backend


def _vectors(model: Any, texts: list[str]) -> NDArray[np.float32]:
    found = model.encode(texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
    return np.ascontiguousarray(found, np.float32)


def _reply(replies: BinaryIO, reply: WorkerReply, vectors: NDArray[np.float32] | None = None) -> None:
    replies.write(msgspec.json.encode(reply) + b"\n" + (b"" if vectors is None else vectors.tobytes()))
    replies.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
