"""OnnxEncoder: an encoder that runs a graph and its tokenizer on one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
import tokenizers
from numpy.typing import NDArray

from gateway.embedding.model_files import EncoderUnavailable, ModelFiles

_RUN_TOKENS: Final = 256
"""Padded tokens in one run; a larger run costs as much as two and delays all its texts."""
_UNKNOWN_SHARE: Final = 0.25
"""Share of unknown tokens beyond which a text is unreadable.

Everything outside the vocabulary maps to one token: most scripts, emoji, words of more than 100 characters. Texts with
much of it lie close together whatever their content.
"""
_UNKNOWN_NAMES: Final = ("[UNK]", "<unk>")
_WARM_UP_TEXT: Final = "what is a warm up ? "
_FATAL_ONLY: Final = 4


class OnnxEncoder:
    """Encoder by ONNX Runtime, for one thread at a time.

    The session copies the weights, so the file is not needed later.
    """

    def __init__(self, graph: Path, files: ModelFiles, encoder_id: str) -> None:
        """Load the graph and the tokenizer; raises EncoderUnavailable when either rejects its file."""
        # Before its first use: a pool of threads for single texts would only cost, and it warns at every fork.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(files.tokenizer))
            self._session = onnxruntime.InferenceSession(graph, _one_thread(), providers=["CPUExecutionProvider"])
        except Exception as error:  # both libraries raise exceptions of their own
            raise EncoderUnavailable(f"{graph}: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        known = (self._tokenizer.token_to_id(name) for name in _UNKNOWN_NAMES)
        unknown = next((token for token in known if token is not None), None)
        if unknown is None:
            raise EncoderUnavailable(f"{files.tokenizer}: no token for what is not in the vocabulary")
        self._unknown = unknown
        self._marks: list[int] = self._tokenizer.encode("").ids
        """Tokens around every text: one before it, the others behind it."""
        self.max_tokens = files.max_tokens
        """Tokens of one text, its marks included, that the model reads."""
        self.num_words: int = self._tokenizer.get_vocab_size()
        """Size of the vocabulary."""
        self._id = encoder_id
        self._dimensions = files.shape.dimensions

    @property
    def id(self) -> str:
        """Name of weights, precision and graph revision."""
        return self._id

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._dimensions

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return `[len(texts), dimensions]`; the end of a text that is too long is cut."""
        rows = [self._cut(row) for row in self.rows_of(texts)]
        found = np.zeros((len(rows), self._dimensions), np.float32)
        readable = [place for place, row in enumerate(rows) if self._can_read(row)]
        if readable:
            found[readable] = self.vectors_of([rows[place] for place in readable])
        return found

    def rows_of(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text with the marks around them, however many there are."""
        whole = [text.encode(errors="replace").decode() for text in texts]  # half a surrogate pair is no character
        encodings = self._tokenizer.encode_batch_fast(whole)  # lets go of the interpreter, unlike `encode`
        return [encoding.ids for encoding in encodings]

    def marked(self, tokens: Sequence[int]) -> list[int]:
        """Return tokens of a text with the marks around them."""
        return [*self._marks[:1], *tokens, *self._marks[1:]]

    def vectors_of(self, rows: Sequence[list[int]]) -> NDArray[np.float32]:
        """Return `[len(rows), dimensions]`; rows of similar length run together, which keeps padding low.

        A row has at most `max_tokens` tokens.
        """
        found = np.zeros((len(rows), self._dimensions), np.float32)
        for run in _runs(list(range(len(rows))), rows):
            found[run] = self._run([rows[place] for place in run])
        return found

    def warm_up(self) -> None:
        """Encode short and long texts, so the first request finds memory allocated and code paged in."""
        for repeats in (1, 4, 16, self.max_tokens):
            self.encode([_WARM_UP_TEXT * repeats])

    def _cut(self, row: list[int]) -> list[int]:
        """Return the row without the end of a text that is too long; the last mark stays."""
        most, num_behind = self.max_tokens, len(self._marks) - 1
        return row if len(row) <= most else [*row[: most - num_behind], *row[len(row) - num_behind :]]

    def _can_read(self, tokens: list[int]) -> bool:
        num_own = len(tokens) - len(self._marks)
        return num_own > 0 and tokens.count(self._unknown) <= _UNKNOWN_SHARE * num_own

    def _run(self, rows: list[list[int]]) -> NDArray[np.float32]:
        ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
        mask = np.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        result: NDArray[np.float32] = self._session.run(["embedding"], {"ids": ids, "mask": mask})[0]
        return result


def _runs(places: list[int], ids: Sequence[list[int]]) -> Iterator[list[int]]:
    """Yield the texts of each run: sorted by length, padded to at most `_RUN_TOKENS`, or one text alone."""
    run: list[int] = []
    for place in sorted(places, key=lambda place: len(ids[place])):
        if run and (len(run) + 1) * len(ids[place]) > _RUN_TOKENS:
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    return options
