"""`python -m loadtests.engine.reference_decode`: `transformers` as a process that measures on request.

Reads one JSON object a line from stdin, `{"prompts": [[ids], ...], "num_tokens": n}`, all prompts equally long;
answers each with a line `{"decode_s": ..., "prefill_s": ..., "num_tokens": ...}`. Decode is `generate` between the
choice of the first and of the last token, so neither prefill nor start-up counts. Prefill is one bare call of the
model for the prompts and the logits of their last tokens, without what `generate` does around it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class StepClock:
    """A logits processor that changes nothing and notes when each token is about to be chosen."""

    def __init__(self) -> None:
        self.instants: list[float] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Called by `generate` once a step."""
        self.instants.append(time.perf_counter())
        return scores


class Reference:
    """One checkpoint in transformers, in the number format and on the device that the options name."""

    def __init__(self, model_dir: Path, num_threads: int, *, dtype: str, device: str) -> None:
        # Imported here: only this process needs them, and they take seconds.
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(num_threads)
        self._torch = torch
        # Any: generate's annotations exclude what its documentation allows.
        model: Any = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=getattr(torch, dtype), attn_implementation="sdpa", device_map=device
        )
        self._model = model.eval()
        self._device = device

    def measure(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> dict[str, float | int]:
        """Generate exactly `num_tokens` for each prompt, greedily, as one batch; with 1, only the prefill is timed."""
        ids = self._torch.tensor(prompts, device=self._device)
        with self._torch.inference_mode():
            if num_tokens == 1:
                return {"decode_s": 0.0, "prefill_s": self._prefill(ids), "num_tokens": 1}
            step_clock = StepClock()
            made = self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                min_new_tokens=num_tokens,
                max_new_tokens=num_tokens,
                do_sample=False,
                logits_processor=[step_clock],
                pad_token_id=0,
            )
        num_made = made.shape[1] - ids.shape[1]
        decode_s = step_clock.instants[-1] - step_clock.instants[0]
        return {"decode_s": decode_s, "prefill_s": 0.0, "num_tokens": int(num_made)}

    def _prefill(self, ids: Any) -> float:
        started_at = time.perf_counter()
        self._model(ids, use_cache=True, logits_to_keep=1).logits.argmax(-1).tolist()
        return time.perf_counter() - started_at


def main(argv: Sequence[str] | None = None) -> int:
    """Answer until stdin ends."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.engine.reference_decode", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(argv)
    reference = Reference(options.model, options.threads, dtype=options.dtype, device=options.device)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(reference.measure(**json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
