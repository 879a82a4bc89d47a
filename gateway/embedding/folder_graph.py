"""FolderGraph: the ONNX graph that comes with a sentence-transformers folder, run without that library and torch.

Hubs ship `onnx/model.onnx` beside the weights. The library runs it with the package `optimum` alone, which keeps the
versions of other libraries back. The graph gives one vector a token; the folder says how they become one of the text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
import numpy as np
import onnxruntime
import tokenizers
from numpy.typing import NDArray

GRAPHS: Final = ("onnx/model.onnx", "model.onnx")
DEFAULT_MAX_TOKENS: Final = 512
_MODULES: Final = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_OUTPUTS: Final = ("last_hidden_state", "token_embeddings")
_BATCH: Final = 16
_LEAST_NORM: Final = 1e-12
_FATAL_ONLY: Final = 4

Floats = NDArray[np.float32]
_Kind = TypeVar("_Kind")


class GraphUnusable(ValueError):
    """A folder has a graph that cannot be run here; the message gives the reason."""


class FolderGraph:
    """Encoder by ONNX Runtime for one thread at a time; vectors have length 1."""

    def __init__(self, folder: Path, graph: Path) -> None:
        """Load a folder's graph and tokenizer; raises GraphUnusable."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        types = [module["type"].rpartition(".")[2] for module in _read(folder / "modules.json", list[dict[str, Any]])]
        if types not in _MODULES:
            raise GraphUnusable(f"its modules are {', '.join(types)}")
        pooling = _read(folder / "1_Pooling" / "config.json", dict[str, Any])
        self._pooling = _pooling_of(pooling)
        stated = _read_if_there(folder / "sentence_bert_config.json")
        self._is_lower = bool(stated.get("do_lower_case"))
        self._prompt = _prompt_of(_read_if_there(folder / "config_sentence_transformers.json"))
        if self._prompt and pooling.get("include_prompt") is False:
            raise GraphUnusable("its pooling leaves the prompt's tokens out")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._session = onnxruntime.InferenceSession(graph, _options(), providers=["CPUExecutionProvider"])
        except Exception as error:  # both libraries raise exceptions of their own
            raise GraphUnusable(f"{type(error).__name__}: {error}") from error
        self._tokenizer.enable_truncation(_max_tokens(folder, stated))
        pad_id = _read_if_there(folder / "config.json").get("pad_token_id") or 0  # RoBERTa counts positions by it
        self._tokenizer.enable_padding(pad_id=pad_id)
        self._inputs = {one.name for one in self._session.get_inputs()}
        outputs = [one.name for one in self._session.get_outputs()]
        found = [name for name in _OUTPUTS if name in outputs]
        if not self._inputs <= _INPUTS or "input_ids" not in self._inputs or not found:
            raise GraphUnusable(f"its graph takes {', '.join(sorted(self._inputs))} and gives {', '.join(outputs)}")
        self._output = found[0]

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return `[len(texts), dimensions]`; the end of a text that is too long is cut."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # texts of like length waste no padding
        parts = [self._run([texts[place] for place in order[at : at + _BATCH]]) for at in range(0, len(order), _BATCH)]
        found = np.empty((len(texts), parts[0].shape[1] if parts else 0), np.float32)
        for part, at in zip(parts, range(0, len(order), _BATCH), strict=True):
            found[order[at : at + _BATCH]] = part
        return found

    def _run(self, texts: Sequence[str]) -> Floats:
        whole = [self._prompt + (text.lower() if self._is_lower else text) for text in texts]
        encodings = self._tokenizer.encode_batch(whole)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        given = {
            "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.array([encoding.type_ids for encoding in encodings], np.int64),
        }
        tokens = self._session.run([self._output], {name: given[name] for name in self._inputs})[0]
        vectors = _pooled(np.asarray(tokens, np.float32), mask, self._pooling)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.ascontiguousarray(vectors / np.maximum(lengths, _LEAST_NORM), np.float32)


Pooling = Literal["mean", "cls"]


def graph_in(folder: Path) -> Path | None:
    """Return the ONNX graph of a folder; None without one."""
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def _pooled(tokens: Floats, mask: NDArray[np.int64], pooling: Pooling) -> Floats:
    """Return the vectors of texts, [n, dimensions], from those of their tokens, [n, tokens, dimensions]."""
    if pooling == "cls":
        return np.asarray(tokens[np.arange(len(tokens)), mask.argmax(axis=1)], np.float32)
    weights = mask[:, :, None].astype(np.float32)
    return np.asarray((tokens * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0), np.float32)


def _pooling_of(config: dict[str, Any]) -> Pooling:
    named = config.get("pooling_mode")
    flags = {name.removeprefix("pooling_mode_") for name, is_on in config.items() if is_on is True}
    if named == "mean" or (named is None and flags - {"include_prompt"} == {"mean_tokens"}):
        return "mean"
    if named == "cls" or (named is None and flags - {"include_prompt"} == {"cls_token"}):
        return "cls"
    raise GraphUnusable("it is pooled neither by the mean nor by the first token")


def _prompt_of(config: dict[str, Any]) -> str:
    """Return what the folder has put before every text."""
    name, prompts = config.get("default_prompt_name"), config.get("prompts") or {}
    if name is not None and not isinstance(prompts.get(name), str):
        raise GraphUnusable(f"it has no prompt {name!r}, its own default")
    return "" if name is None else str(prompts[name])


def _max_tokens(folder: Path, stated: dict[str, Any]) -> int:
    """Return the most tokens of a text: the stated number, else what tokenizer and model bear, at most the default."""
    lengths = [
        _read_if_there(folder / "tokenizer_config.json").get("model_max_length"),
        _read_if_there(folder / "config.json").get("max_position_embeddings"),
    ]
    known = [length for length in lengths if isinstance(length, int) and length > 0]
    length = stated.get("max_seq_length")
    return length if isinstance(length, int) and length > 0 else min([*known, DEFAULT_MAX_TOKENS])


def _read_if_there(path: Path) -> dict[str, Any]:
    return _read(path, dict[str, Any]) if path.is_file() else {}


def _read(path: Path, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise GraphUnusable(f"{path.name}: {error}") from error


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the event loop has the same cores
    return options
