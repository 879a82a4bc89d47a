"""The engine on a GPU: decode steps of an 8 B-parameter shape beside what the card's memory allows, and the gaps.

A decode step reads all weights, and the rows' keys and values, once; what that takes at the copy bandwidth measured in
the same process is the bound, and `share` is bound over time. Steps are measured queued (launched without waiting, so
that the card never idles) by `penstock engine steps`, and as the engine serves them, over HTTP; the difference is the
gap between steps that scheduling, sampling and reporting leave. Runs on a CPU too, with `--small`, to be tried.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtests.engine.decode_rates import Batch, MeasuredProcess, Rate, decode_plain, warm_prefixes
from loadtests.engine.part import Prompts, Setting
from loadtests.engine.prefix import measure_prefix
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Process, Workbench
from loadtests.harness.stack import start_engine

_CHECKPOINT_S = 1800.0
_STEPS_S = 1200.0
_CONTEXT = 1024
_ROWS = 64
_MANY_TOKENS = 257
_SMALL = {"layers": 2, "context": 64, "num_seqs": 4, "tokens": 17}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--model", type=Path, help="folder (default: random weights of Llama 3's 8 B shape)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--steps", type=int, default=100, help="of each kind (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="over HTTP (default %(default)s)")
    parser.add_argument(
        "--quantization",
        nargs="+",
        choices=("none", "int8", "fp8", "int4"),
        help="of the bare steps; `none` is always among them (default: none fp8 int4 on a card, else none)",
    )
    parser.add_argument("--prefix", action="store_true", help="also a shared prefix of 2,000 tokens")
    parser.add_argument("--transformers", action="store_true", help="also transformers.generate on the same prompts")
    parser.add_argument("--small", action="store_true", help="tiny shapes: whether it works, not how fast it is")


async def run(options: argparse.Namespace) -> Card:
    """Write the checkpoint, measure its steps bare, then served."""
    rows, context = (_SMALL["num_seqs"], _SMALL["context"]) if options.small else (_ROWS, _CONTEXT)
    async with Workbench() as bench:
        model = options.model.resolve() if options.model else await _write(bench, is_small=options.small)
        results: dict[str, Value] = {"model": model.name}
        for quantization in _kinds(options):
            shapes = ((1, context // 8), (rows, context)) if quantization == "none" else ((1, context // 8),)
            results |= await _bare(bench, options, model, quantization, shapes)
        num_tokens = _SMALL["tokens"] if options.small else _MANY_TOKENS
        groups = [Prompts(model, seed=1).batch(*shape) for shape in ((1, context // 8), (rows, context - num_tokens))]
        results |= await _served(bench, options, model, groups, num_tokens, results)
        if options.transformers:
            results |= await _beside_transformers(options, model, groups, num_tokens, results)
        if options.prefix:
            setting = Setting(model=model, threads=4, seed=1, data=None, seconds=60.0)
            results |= (await measure_prefix(setting)).results
    return Card(
        bench="engine_gpu",
        arrivals="closed: one decode step after the other, sequences of equal length",
        results=results,
        notes=(
            "share    bound by copy bandwidth over time of a queued step",
            "gap      share of a served step in which the card waits for the host",
            "ratio    a step of transformers.generate (bfloat16, sdpa) over a served step",
        ),
    )


def _kinds(options: argparse.Namespace) -> Sequence[str]:
    """Quantizations whose steps are measured; `none` first, for served steps are compared with it."""
    default = () if options.small or options.device == "cpu" else ("fp8", "int4")
    return ("none", *(kind for kind in options.quantization or default if kind != "none"))


async def _write(bench: Workbench, *, is_small: bool) -> Path:
    folder = bench.folder / "llama-8b-shape"
    more = ["--small", "--layers", str(_SMALL["layers"])] if is_small else []
    arguments = ["--out", str(folder), "--llama-8b", *more]
    maker = await bench.start("checkpoint", "loadtests.engine.random_checkpoint", arguments)
    await _answered(maker, _CHECKPOINT_S)
    return folder


async def _bare(
    bench: Workbench, options: argparse.Namespace, model: Path, quantization: str, shapes: Sequence[tuple[int, int]]
) -> dict[str, Value]:
    """Steps without an engine around them."""
    arguments = ["steps", "--model", str(model), "--device", options.device, "--quantization", quantization]
    arguments += ["--steps", str(options.steps), "--json"]
    for rows, context in shapes:
        arguments += ["--shape", f"{rows}x{context}"]
    process = await bench.start(f"steps-{quantization}", "engine", arguments)
    await _answered(process, _STEPS_S)
    found = process.json_lines()[-1]
    print(f"{quantization}: {json.dumps(found)}", file=sys.stderr, flush=True)
    name = "bf16" if quantization == "none" else quantization
    results: dict[str, Value] = {"card": str(found["card"]), "copy_gb_s": _number(found["copy_gb_s"])}
    results[f"{name}_weight_gb"] = _number(found["weight_gb"])
    figures = found["shapes"]
    assert isinstance(figures, list)
    for (rows, _), figure in zip(shapes, figures, strict=True):
        key = f"{name}_b{rows}"
        results[f"{key}_queued_ms"] = figure["queued_ms"]
        results[f"{key}_overlapped_ms"] = figure["overlapped_ms"]
        results[f"{key}_awaited_ms"] = figure["awaited_ms"]
        results[f"{key}_share"] = figure["bound_share"]
    return results


async def _served(
    bench: Workbench,
    options: argparse.Namespace,
    model: Path,
    groups: Sequence[Batch],
    num_tokens: int,
    bare: dict[str, Value],
) -> dict[str, Value]:
    """The same steps with scheduler, sampling and front."""
    flags = (
        *("--device", options.device, "--max-num-seqs", str(max(map(len, groups)))),
        *("--memory-utilization", "0.9", "--log-level", "warning"),
    )
    engine = await start_engine(bench, model, *flags)
    results: dict[str, Value] = {}
    for group in groups:
        await warm_prefixes(engine.address, group)
        rates = [await decode_plain(engine.address, group, num_tokens) for _ in range(options.repeats + 1)][1:]
        step_ms = _quickest_step_ms(rates, len(group))
        print(f"served, batch {len(group)}: {step_ms:.2f} ms", file=sys.stderr, flush=True)
        results[f"served_b{len(group)}_ms"] = step_ms
        results[f"served_b{len(group)}_gap"] = 1.0 - _number(bare[f"bf16_b{len(group)}_queued_ms"]) / step_ms
    await engine.process.stop()
    return results


async def _beside_transformers(
    options: argparse.Namespace,
    model: Path,
    groups: Sequence[Batch],
    num_tokens: int,
    served: dict[str, Value],
) -> dict[str, Value]:
    """Decode steps of `transformers.generate`, after the engine has left the card's memory."""
    device = "cpu" if options.device == "cpu" else "cuda"
    arguments = ["--model", str(model), "--threads", "4", "--device", device, "--dtype", "bfloat16"]
    results: dict[str, Value] = {}
    async with Workbench() as bench:
        reference = await MeasuredProcess.start(bench, "loadtests.engine.reference_decode", arguments)
        for group in groups:
            rates = [await reference.decode(group, num_tokens) for _ in range(3)][1:]
            step_ms = _quickest_step_ms(rates, len(group))
            results[f"transformers_b{len(group)}_ms"] = step_ms
            results[f"transformers_b{len(group)}_ratio"] = step_ms / _number(served[f"served_b{len(group)}_ms"])
    return results


def _quickest_step_ms(rates: Sequence[Rate], num_rows: int) -> float:
    """Return the quickest round's milliseconds a step: the host's part is wanted, not its neighbours'."""
    return min(1e3 * rate.seconds / (rate.num_tokens / num_rows) for rate in rates)


async def _answered(process: Process, limit_s: float) -> None:
    async def has_answered() -> bool:
        await asyncio.sleep(0)
        return bool(process.json_lines())

    await process.wait_until(has_answered, limit_s)


def _number(value: object) -> float:
    assert isinstance(value, int | float), value
    return float(value)
