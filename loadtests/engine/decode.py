"""Decode and prefill of the engine beside `transformers`: same checkpoint, threads, prompts and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from loadtests.clients.completions import complete_tokens
from loadtests.clients.http_client import Address, clock
from loadtests.engine.decode_rates import Batch, MeasuredProcess, decode_plain, decode_streamed, warm_prefixes
from loadtests.engine.part import Finding, Prompts, Results, Setting
from loadtests.engine.repeats import Repeats, Side
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import start_engine

_BATCHES = (1, 8)
_INT8 = ("int8", "int8_dynamic")
"""Weights, and weights and inputs."""
_PROMPT_TOKENS = 128
_MIN_TOKENS, _MAX_TOKENS = 17, 257
_MIN_REPEATS = 3
_SETTLED_REPEATS = 7
"""A measurement is made as short as it takes to get so many repeats."""
_SHAPE_START_S = 120.0
_COMPARED = (
    "plain answers by the engine's stage record, first sequence's first token to the last one's last, prompts of "
    f"{_PROMPT_TOKENS} tokens in the prefix cache; against transformers.generate in float32 from the choice of its "
    "first token to that of its last; equal threads and cores, sides in turn, median of the rounds' ratios"
)


async def measure_bundled(setting: Setting) -> Finding:
    """The checkpoint as it is, at batch 1 and 8; streams beside plain answers."""
    prompts = Prompts(setting.model, setting.seed)
    results: Results = {}
    notes = [f"decode: {_COMPARED}", "decode, streamed: while all sequences stream, as a client on these cores sees it"]
    async with Workbench() as bench:
        engine = await start_engine(bench, setting.model, *setting.flags("--max-num-seqs", str(max(_BATCHES))))
        reference = await MeasuredProcess.transformers(bench, setting)
        for batch in _BATCHES:
            group = prompts.batch(batch, _PROMPT_TOKENS)
            await warm_prefixes(engine.address, group)
            num_tokens = await _num_tokens(engine.address, reference, group, setting.seconds / len(_BATCHES))
            sides: dict[str, Side] = {
                f"engine b{batch}": partial(_plain, engine.address, group, num_tokens),
                f"streamed b{batch}": partial(_streamed, engine.address, group, num_tokens),
                f"transformers b{batch}": partial(_reference, reference, group, num_tokens),
            }
            repeats = await Repeats(sides).run(setting.seconds / len(_BATCHES), at_least=_MIN_REPEATS)
            theirs = f"transformers b{batch}"
            results |= {
                f"decode_b{batch}_ratio": repeats.ratio(f"engine b{batch}", theirs),
                f"decode_b{batch}_streamed_ratio": repeats.ratio(f"streamed b{batch}", theirs),
                f"decode_b{batch}_tok_s": repeats.median(f"engine b{batch}"),
                f"decode_b{batch}_streamed_tok_s": repeats.median(f"streamed b{batch}"),
                f"transformers_b{batch}_tok_s": repeats.median(theirs),
            }
            notes += [f"tokens/s {line}" for line in repeats.lines()]
    return Finding(results={"bundled_b1_tok_s": results["decode_b1_tok_s"], **results}, notes=notes)


async def measure_shape(setting: Setting) -> Finding:
    """A Llama of 135 M random weights: float32, int8, and int8 with rounded inputs; decode and prefill."""
    async with Workbench() as bench:
        checkpoint = await _write_shape(bench, setting.seed)
        setting = replace(setting, model=checkpoint, quantization="none")
        prompts = Prompts(checkpoint, setting.seed)
        engines = {
            name: (await start_engine(bench, checkpoint, *of_engine.flags("--max-num-seqs", "8"), name=name)).address
            for name, of_engine in (("fp32", setting), *((name, replace(setting, quantization=name)) for name in _INT8))
        }
        reference = await MeasuredProcess.transformers(bench, setting)
        seconds = setting.seconds / (len(_BATCHES) + 0.5)
        found, notes = await _compare_prefill(engines, reference, prompts, seconds / 2)
        for batch in _BATCHES:
            more, lines = await _compare_shape(engines, reference, prompts.batch(batch, _PROMPT_TOKENS), seconds)
            found |= more
            notes += lines
    return Finding(results=found, notes=[f"135 M shape (30 layers, 576 wide, 49k vocabulary): {_COMPARED}", *notes])


async def _write_shape(bench: Workbench, seed: int) -> Path:
    folder = bench.folder / "shape"
    maker = await bench.start(
        "checkpoint", "loadtests.engine.random_checkpoint", ["--out", str(folder), "--seed", str(seed)]
    )

    async def is_written() -> bool:
        return bool(maker.json_lines())

    await maker.wait_until(is_written, _SHAPE_START_S)
    return folder


async def _compare_shape(
    engines: Mapping[str, Address], reference: MeasuredProcess, group: Batch, seconds: float
) -> tuple[Results, list[str]]:
    batch = len(group)
    for address in engines.values():
        await warm_prefixes(address, group)
    num_tokens = await _num_tokens(engines["fp32"], reference, group, seconds)
    sides: dict[str, Side] = {f"transformers b{batch}": partial(_reference, reference, group, num_tokens)}
    for name, address in engines.items():
        sides[f"{name} b{batch}"] = partial(_plain, address, group, num_tokens)
    repeats = await Repeats(sides).run(seconds, at_least=_MIN_REPEATS)
    results: Results = {f"shape_transformers_b{batch}_tok_s": repeats.median(f"transformers b{batch}")}
    for name in engines:
        results[f"{name}_b{batch}_ratio"] = repeats.ratio(f"{name} b{batch}", f"transformers b{batch}")
        results[f"{name}_b{batch}_tok_s"] = repeats.median(f"{name} b{batch}")
    return results, [f"tokens/s {line}" for line in repeats.lines()]


async def _compare_prefill(
    engines: Mapping[str, Address], reference: MeasuredProcess, prompts: Prompts, seconds: float
) -> tuple[Results, list[str]]:
    async def ours(name: str) -> float:
        return (await complete_tokens(engines[name], prompts.of(_PROMPT_TOKENS), 1)).prefill_s

    async def theirs() -> float:
        return await reference.prefill([prompts.of(_PROMPT_TOKENS)])

    sides: dict[str, Side] = {f"prefill {name}": partial(ours, name) for name in engines}
    repeats = Repeats({**sides, "prefill transformers": theirs})
    await repeats.run_once()  # allocations and caches settle
    repeats = await Repeats({**sides, "prefill transformers": theirs}).run(seconds, at_least=_MIN_REPEATS)
    return {
        "prefill_ratio": repeats.ratio("prefill transformers", "prefill fp32"),
        **{f"prefill_{name}_ratio": repeats.ratio("prefill transformers", f"prefill {name}") for name in _INT8},
        "prefill_ms": 1e3 * repeats.median("prefill fp32"),
        "transformers_prefill_ms": 1e3 * repeats.median("prefill transformers"),
    }, [
        f"prefill: {_PROMPT_TOKENS} new tokens, admission to first token chosen, against one bare call of the model",
        *(f"seconds  {line}" for line in repeats.lines()),
    ]


async def _num_tokens(engine: Address, reference: MeasuredProcess, group: Batch, seconds: float) -> int:
    """How many tokens a measurement takes, so that the time holds enough repeats; warms both sides up."""
    started_at = clock()
    await decode_plain(engine, group, _MIN_TOKENS)
    await reference.decode(group, _MIN_TOKENS)
    rates = [await decode_plain(engine, group, _MIN_TOKENS), await reference.decode(group, _MIN_TOKENS)]
    step_s = sum(rate.seconds for rate in rates) / (_MIN_TOKENS - 1)
    left_s = seconds - (clock() - started_at)
    return max(_MIN_TOKENS, min(_MAX_TOKENS, int(left_s / _SETTLED_REPEATS / (2 * step_s))))


async def _plain(engine: Address, group: Batch, num_tokens: int) -> float:
    return (await decode_plain(engine, group, num_tokens)).tokens_per_s


async def _streamed(engine: Address, group: Batch, num_tokens: int) -> float:
    return (await decode_streamed(engine, group, num_tokens)).tokens_per_s


async def _reference(reference: MeasuredProcess, group: Batch, num_tokens: int) -> float:
    return (await reference.decode(group, num_tokens)).tokens_per_s
