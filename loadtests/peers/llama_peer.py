"""`python -m loadtests.peers.llama_peer`: llama.cpp as a process that measures on request.

It runs under any Python that has `llama_cpp`, and needs nothing else of this project. Reads one JSON object a line from
stdin, `{"prompts": [[ids], ...], "num_tokens": n}`; answers each with a line
`{"decode_s": ..., "prefill_s": ..., "num_tokens": ...}`. Decode is the time between the choice of the first token of
all sequences and that of the last, all sequences in one batch; prefill is the first sequence's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

_BATCH_TOKENS = 512


class LlamaPeer:
    """One model file in llama.cpp on a CPU, with greedy choices."""

    def __init__(self, path: str, num_threads: int) -> None:
        # Imported here: only this process needs it, and its Python may be another one.
        import llama_cpp
        import numpy as np

        self._llama, self._numpy, self._num_threads = llama_cpp, np, num_threads
        llama_cpp.llama_backend_init()
        self._model: Any = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._context: Any = None
        self._shape = (0, 0)

    def measure(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> dict[str, float | int]:
        """Compute the prompts one after the other, then all further tokens of all sequences step by step."""
        longest = max(len(prompt) for prompt in prompts) + num_tokens
        self._open(len(prompts), longest)
        chosen, prefill_s = [], []
        for row, prompt in enumerate(prompts):
            started_at = time.perf_counter()
            chosen.append(self._prefill(row, prompt))
            prefill_s.append(time.perf_counter() - started_at)
        started_at = time.perf_counter()
        for step in range(num_tokens - 1):
            tokens = [(token, len(prompts[row]) + step, row) for row, token in enumerate(chosen)]
            chosen = self._decode(tokens, range(len(tokens)))
        return {"decode_s": time.perf_counter() - started_at, "prefill_s": prefill_s[0], "num_tokens": num_tokens}

    def _open(self, num_seqs: int, longest: int) -> None:
        """Empty the KV cache; make another context where this one is too small."""
        llama = self._llama
        if self._context is None or num_seqs > self._shape[0] or longest > self._shape[1]:
            if self._context is not None:
                llama.llama_free(self._context)
            params = llama.llama_context_default_params()
            params.n_ctx, params.n_seq_max = num_seqs * longest, num_seqs
            params.n_batch = params.n_ubatch = _BATCH_TOKENS
            params.n_threads = params.n_threads_batch = self._num_threads
            params.no_perf = True
            self._context = llama.llama_init_from_model(self._model, params)
            if not self._context:
                raise SystemExit("llama.cpp cannot make a context")
            self._batch = llama.llama_batch_init(_BATCH_TOKENS, 0, 1)
            self._shape = num_seqs, longest
        llama.llama_memory_clear(llama.llama_get_memory(self._context), True)

    def _prefill(self, row: int, prompt: Sequence[int]) -> int:
        found: list[int] = []
        for start in range(0, len(prompt), _BATCH_TOKENS):
            part = prompt[start : start + _BATCH_TOKENS]
            tokens = [(token, start + place, row) for place, token in enumerate(part)]
            found = self._decode(tokens, [len(part) - 1])
        return found[0]

    def _decode(self, tokens: Sequence[tuple[int, int, int]], wanted: Sequence[int]) -> list[int]:
        """Compute tokens (id, position, sequence); return the most likely ones behind the wanted places."""
        llama, batch = self._llama, self._batch
        batch.n_tokens = len(tokens)
        for place, (token, position, row) in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, position
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
            batch.logits[place] = place in wanted
        if llama.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama.cpp cannot compute the batch")
        return [self._likeliest(place) for place in wanted]

    def _likeliest(self, place: int) -> int:
        logits = self._llama.llama_get_logits_ith(self._context, place)
        address = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        return int(self._numpy.ctypeslib.as_array(address, (self._vocab_size,)).argmax())


def main(argv: Sequence[str] | None = None) -> int:
    """Answer until stdin ends."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.peers.llama_peer", description=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args(argv)
    peer = LlamaPeer(options.model, options.threads)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.measure(**json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
