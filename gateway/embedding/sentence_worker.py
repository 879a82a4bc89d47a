"""Command `python -m gateway.embedding.sentence_worker MODEL`: an encoder in a process of its own.

A folder with an ONNX graph runs on ONNX Runtime, and a function `module:function` in its own package. Any other model
runs in the library sentence-transformers, which imports torch. That takes seconds and hundreds of megabytes, and a
crash in it must not end the gateway.
The process reads one JSON list of texts a line. It replies with one JSON line, `WorkerReply`, and behind it the vectors
as 32-bit floats, in the machine's byte order. It ends with its standard input.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

INSTALL: Final = "pip install 'penstock[encoders]'"
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_LEAST_NORM: Final = 1e-12
_texts: Final = msgspec.json.Decoder(list[str])
_Encode = Callable[[list[str]], NDArray[np.float32]]


class WorkerReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line before the vectors."""

    dimensions: int = 0
    num_texts: int = 0
    backend: str = ""
    reason: str = ""
    """Why a graph of the folder is not used; empty where it is, or there is none."""
    error: str | None = None


def is_function(name: str) -> bool:
    """Return whether an encoder's name is `module:function`."""
    return _FUNCTION.fullmatch(name) is not None


def main(argv: Sequence[str]) -> int:
    """Serve until standard input ends; return 1 when the model cannot be loaded."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no reply
    try:
        encode, backend, reason = _load(argv[0])
        dimensions = len(encode(["warm up"])[0])
    except Exception as error:  # the libraries raise many kinds; the gateway reports each
        _reply(replies, WorkerReply(error=f"{type(error).__name__}: {error}"))
        return 1
    _reply(replies, WorkerReply(dimensions=dimensions, backend=backend, reason=reason))
    for line in requests:
        try:
            vectors = encode(_texts.decode(line))
        except Exception as error:
            _reply(replies, WorkerReply(error=f"{type(error).__name__}: {error}"))
        else:
            _reply(replies, WorkerReply(dimensions=dimensions, num_texts=len(vectors)), vectors)
    return 0


def _load(name: str) -> tuple[_Encode, str, str]:
    """Return the encoding, its backend, and why a graph of the folder is not used."""
    if is_function(name):
        return _function(name), "function", ""
    from gateway.embedding.folder_graph import FolderGraph, GraphUnusable, graph_in  # the gateway imports this module

    folder, reason = Path(name), ""
    graph = graph_in(folder)
    if graph is not None:
        try:
            return FolderGraph(folder, graph).encode, "onnx", ""
        except GraphUnusable as error:
            reason = f"{graph.relative_to(folder)}: {error}"
        except (KeyError, TypeError, AttributeError) as error:  # a file of the folder has another form
            reason = f"{graph.relative_to(folder)}: {type(error).__name__}: {error}"
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise RuntimeError("; ".join(filter(None, (reason, str(error), INSTALL)))) from error
    return partial(_vectors, SentenceTransformer(name, device="cpu")), "torch", reason


def _function(name: str) -> _Encode:
    """Return the encoding by a function that takes a list of texts and returns a row for each; rows get length 1."""
    module, _, attribute = name.partition(":")
    call: Callable[[list[str]], Any] = getattr(import_module(module), attribute)

    def encode(texts: list[str]) -> NDArray[np.float32]:
        rows = np.asarray(call(texts), np.float32)
        if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
            raise ValueError(f"{name} returned shape {rows.shape} for {len(texts)} texts, not a row for each")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.ascontiguousarray(rows / np.maximum(lengths, _LEAST_NORM), np.float32)

    return encode


def _vectors(model: Any, texts: list[str]) -> NDArray[np.float32]:
    found = model.encode(texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
    return np.ascontiguousarray(found, np.float32)


def _reply(replies: BinaryIO, reply: WorkerReply, vectors: NDArray[np.float32] | None = None) -> None:
    replies.write(msgspec.json.encode(reply) + b"\n" + (b"" if vectors is None else vectors.tobytes()))
    replies.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
