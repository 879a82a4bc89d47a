"""Check the quality of a quantized model: `penstock engine quantize --check`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import typing
from collections.abc import Sequence
from pathlib import Path

import torch

from engine.bundled import model_dir
from engine.config import KVDtype, Quantization
from engine.cpu.jit.failure import CompileError
from engine.models.config.checkpoint import CheckpointError
from engine.models.config.config_reader import ModelConfigError
from engine.quantization.float8 import QuantizationError
from engine.selftest.quality import QualityLoss, Variant, VariantQuality, file_texts, loss, measure_quality, task_texts
from engine.training.data.example import Example
from engine.training.data.generator import test_set


def main(argv: Sequence[str] | None = None) -> int:
    """Print the results and one line of JSON.

    Returns:
        0 within the allowed loss, 1 above it, 2 if the check cannot run.
    """
    options = _parser().parse_args(argv)
    try:
        return _check(options)
    except (CheckpointError, CompileError, ModelConfigError, QuantizationError, OSError, ValueError) as error:
        print(f"quantize: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock engine quantize", description=__doc__)
    parser.add_argument("--check", action="store_true", required=True, help="measure the loss and compare it")
    parser.add_argument("--model", type=Path, default=model_dir("large"), metavar="DIR", help="default: bundled large")
    parser.add_argument(
        "--baseline", type=Path, metavar="DIR", help="unquantized weights, where --model is AWQ or GPTQ"
    )
    parser.add_argument("--quantization", choices=typing.get_args(Quantization), default="int8")
    parser.add_argument("--kv-dtype", choices=typing.get_args(KVDtype), default="auto")
    parser.add_argument("--text", type=Path, metavar="FILE", help="text for the perplexity of a model of one's own")
    parser.add_argument("--max-tokens", type=int, default=20_000, help="of --text (default %(default)s)")
    parser.add_argument("--samples", type=int, default=12, help="bundled: prompts for each task and difficulty")
    parser.add_argument("--seed", type=int, default=7, help="of the held-out prompts (default %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch (default: its own)")
    parser.add_argument("--max-perplexity-loss", type=float, default=0.01, help="as a share (default %(default)s)")
    parser.add_argument("--max-accuracy-loss", type=float, default=1.0, help="in points (default %(default)s)")
    return parser


def _check(options: argparse.Namespace) -> int:
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    if options.kv_dtype == "fp8":
        raise QuantizationError("kv_dtype: fp8 needs a GPU; the check runs on the CPU")
    folder: Path = options.model.resolve()
    baseline: Path = folder if options.baseline is None else options.baseline.resolve()
    is_bundled = baseline in (model_dir("large").resolve(), model_dir("small").resolve())
    if not is_bundled and options.text is None:
        raise QuantizationError("--text: name a file to measure perplexity on; only the bundled models bring their own")
    tasks = test_set(options.seed, options.samples) if is_bundled else []
    texts = (
        task_texts(baseline, tasks) if options.text is None else file_texts(baseline, options.text, options.max_tokens)
    )
    started_at = time.monotonic()
    before = measure_quality(Variant(model_dir=baseline), texts, tasks)
    variant = Variant(model_dir=folder, quantization=options.quantization, kv_dtype=options.kv_dtype)
    after = measure_quality(variant, texts, tasks)
    found = loss(before, after)
    excess = found.excess(options.max_perplexity_loss, options.max_accuracy_loss)
    _print(options, tasks, before, after, found, excess, time.monotonic() - started_at)
    return 0 if excess is None else 1


def _print(
    options: argparse.Namespace,
    tasks: Sequence[Example],
    before: VariantQuality,
    after: VariantQuality,
    found: QualityLoss,
    excess: str | None,
    seconds: float,
) -> None:
    results: dict[str, object] = {
        "model": options.model.resolve().name,
        "quantization": options.quantization,
        "kv_dtype": options.kv_dtype,
        "perplexity_before": round(before.perplexity, 5),
        "perplexity_after": round(after.perplexity, 5),
        "perplexity_loss": round(found.perplexity, 5),
        "max_perplexity_loss": options.max_perplexity_loss,
        "num_prompts": len(tasks),
    }
    if tasks:
        same = sum(one == other for one, other in zip(before.answers, after.answers, strict=True))
        results |= {
            "accuracy_before": before.accuracy,
            "accuracy_after": after.accuracy,
            "accuracy_loss": found.accuracy,
            "max_accuracy_loss": options.max_accuracy_loss,
            "equal_answers_ratio": same / len(tasks),
        }
    results |= {"seconds": round(seconds, 1), "torch": torch.__version__, "hardware": platform.processor()}
    print("== quantize --check ==")
    for name, value in results.items():
        print(f"  {name:<22} {round(value, 4) if isinstance(value, float) else value}")
    print("  within the stated loss" if excess is None else f"  REFUSED: {excess}")
    print(json.dumps({**results, "refused": excess}), flush=True)
