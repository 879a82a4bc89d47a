"""Which steps run compiled: by the processor's features and the model's shapes, not by a start that may be busy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.config import CoreConfig
from engine.cpu.execution.model import CompiledModel
from engine.cpu.gemm import pair_tiles
from engine.cpu.gemm.matrix_unit import is_permitted
from engine.cpu.gemm.products import PAIRS
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import target
from engine.cpu.step.prompt_mode import PromptWay
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from engine.runner.adaptive_runner import AdaptiveRunner
from engine.runner.cpu_steps import (
    PackerChoice,
    choose_packer,
    cpu_kernels,
    follow,
    settle_steps,
    with_compiled_steps,
)
from engine.runner.machine import Machine, find_machine
from engine.runner.warm_up import made_up_batch
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput
from tests.engine.core.checkpoints import write_checkpoint
from tests.engine.core.fakes import FakeClock
from tests.engine.core.tiny_core import TinyCore
from tests.engine.models.checkpoints import make_reference, save_checkpoint


class Steps:
    """What the choice of steps sees of a model that can run compiled."""

    def __init__(self, *ways: PromptWay) -> None:
        self.max_tokens = 0
        self.prompt_way: PromptWay = "torch"
        self.prompt_ways = list(ways)
        self.max_verified = 0
        self.num_threads = 0
        self.products = {"float32": 1}

    def resize(self, num_threads: int) -> None:
        self.num_threads = num_threads

    def computes(self, num_tokens: int) -> bool:
        return num_tokens <= self.max_tokens or self.prompt_way != "torch"


class Unmoved:
    """A runner whose steps take no time at all, as the worst clock of a busy start could state."""

    def execute(self, batch: SchedulerOutput) -> StepOutput:
        return StepOutput([SequenceResult([1]) for _ in batch.chunks])


def step(num_seqs: int, num_tokens: int = 1) -> SchedulerOutput:
    return made_up_batch(num_seqs, num_tokens, 128, num_blocks=1024, block_size=16)


def settled(model: object, runner: object, clock: FakeClock) -> AdaptiveRunner:
    return settle_steps(model, runner, num_speculative_tokens=8, num_weight_bytes=1, clock=clock)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ways", "expected"),
    [(("torch", "vectors"), "vectors"), (("torch", "vectors", "matrix unit"), "matrix unit")],
)
def test_the_start_measures_nothing_and_takes_what_the_processor_has(
    ways: tuple[PromptWay, ...], expected: PromptWay
) -> None:
    class Untouched:
        def execute(self, batch: SchedulerOutput) -> StepOutput:
            raise AssertionError("a start beside other work would measure that work")

    model = Steps(*ways)
    settled(model, Untouched(), FakeClock())
    assert (model.max_tokens, model.prompt_way, model.max_verified) == (64, expected, 9)
    assert model.num_threads == torch.get_num_threads()


def test_a_model_without_compiled_steps_is_computed_in_torch() -> None:
    runner = settled(object(), Unmoved(), FakeClock())
    for _ in range(100):
        assert len(runner.execute(step(1, 100)).results) == 1


def test_no_clock_decides_the_numbers_of_a_prompt(tmp_path: Path) -> None:
    """Steps that take random times are what a busy machine shows; each answer must still have the same bits."""
    write_checkpoint(tmp_path)
    core = TinyCore(tmp_path, compiled_threads=2, prefix_cache=False)
    rng, seconds = random.Random(1), 0.0

    def clock() -> float:
        nonlocal seconds
        seconds += 0.04 * rng.random()
        return seconds

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        core.runner = settle_steps(  # type: ignore[assignment]
            core.model,
            core.runner,
            num_speculative_tokens=4,
            num_weight_bytes=1 << 30,
            clock=clock,
        )
        for length in (100, 100, 70) * 40:
            core.answers([[(7 * n * n + 3) % 128 for n in range(length)]], max_tokens=2, num_top_logprobs=3)
    finally:
        torch.set_num_threads(before)
    found = {(len(output.token_ids), repr(output.logprobs)) for output in core.outputs}
    assert len(found) == 4, "two outputs behind each of two prompts"


def config(folder: Path, **settings: object) -> CoreConfig:
    return CoreConfig.of(model_dir=folder, device="cpu", **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_checkpoint(make_reference("qwen3", hidden_size=96), tmp_path)


@pytest.fixture
def machine(folder: Path) -> Machine:
    num_threads = torch.get_num_threads()
    found = find_machine(config(folder))
    torch.set_num_threads(num_threads)
    return found


def choice(folder: Path, machine: Machine, **settings: object) -> PackerChoice:
    return choose_packer(config(folder, **settings), machine, read_model_config(folder))


@pytest.mark.parametrize("settings", [{}, *({"quantization": name} for name in ("int8", "int8_dynamic", "int4"))])
def test_weights_are_packed_for_compiled_steps(folder: Path, machine: Machine, settings: dict[str, str]) -> None:
    found = choice(folder, machine, **settings)
    assert found.packer is not None
    assert not found.reason


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"compiled_steps": False}, "compiled_steps is off"),
        ({"quantization": "fp8"}, "quantization is fp8"),
        ({"tensor_parallel": 2}, "tensor_parallel divides the model"),
        ({"block_size": LANES + 1}, f"block_size is {LANES + 1}, no multiple of {LANES}"),
    ],
)
def test_the_reason_is_stated_where_no_step_runs_compiled(
    folder: Path, machine: Machine, settings: dict[str, object], reason: str
) -> None:
    found = choice(folder, machine, **settings)
    assert (found.packer, found.reason) == (None, reason)
    kernels = cpu_kernels(Plain(), machine, found)  # type: ignore[arg-type]
    assert kernels is not None
    assert kernels.summary().startswith(f"CPU kernels: steps in torch: {reason}; KV pool in float32; ")


@pytest.mark.parametrize(
    ("ways", "is_exact"),
    [(("torch", "vectors"), True), (("torch", "vectors", "matrix unit"), False)],
)
def test_streams_resume_with_the_same_bits_where_prompts_have_one_unit(
    ways: tuple[PromptWay, ...], is_exact: bool, folder: Path, machine: Machine
) -> None:
    kernels = cpu_kernels(Steps(*ways), machine, PackerChoice(None))  # type: ignore[arg-type]
    assert kernels is not None
    assert kernels.resumes_exactly == is_exact
    assert ("close numbers" in kernels.summary()) != is_exact
    assert kernels.processor == target()


class Plain:
    """A model without compiled steps."""


def test_sizes_that_fill_no_register_are_a_reason_too(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3", hidden_size=96, head_dim=LANES // 2), tmp_path)
    num_threads = torch.get_num_threads()
    found = choice(folder, find_machine(config(folder)))
    torch.set_num_threads(num_threads)
    assert found.reason == f"head_dim is {LANES // 2}, no multiple of {LANES}"


def test_a_draft_model_runs_compiled_as_far_as_the_one_it_drafts_for() -> None:
    model, draft = Steps("torch", "vectors"), Steps("torch", "vectors")
    model.max_tokens, model.prompt_way, model.max_verified = 16, "vectors", 5
    follow(draft, model)  # type: ignore[arg-type]
    assert (draft.max_tokens, draft.prompt_way, draft.max_verified) == (16, "vectors", 5)
    follow(None, model)  # type: ignore[arg-type]


def test_torch_computes_what_is_left_of_a_compiled_step_on_one_thread() -> None:
    """Its threads would wait for each other, and for a core that compiled steps use."""
    seen: list[tuple[int, int]] = []
    before = torch.get_num_threads()

    model = Steps("torch")

    class Runner:
        def execute(self, batch: SchedulerOutput) -> StepOutput:
            seen.append((sum(chunk.num_query_tokens for chunk in batch.chunks), torch.get_num_threads()))
            return StepOutput([SequenceResult([1]) for _ in batch.chunks])

    try:
        torch.set_num_threads(2)
        runner = settled(model, Runner(), FakeClock())
        for num_seqs, num_tokens in ((1, 1), (64, 1), (1, 65), (2, 1)):
            runner.execute(step(num_seqs, num_tokens))
        assert seen == [(1, 1), (64, 1), (65, 2), (2, 1)]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("checkpoint", "settings", "expected"),
    [
        (torch.bfloat16, {}, torch.bfloat16),
        (torch.float16, {}, torch.bfloat16),
        (torch.float32, {}, torch.float32),
        (torch.float32, {"kv_dtype": "bfloat16"}, torch.bfloat16),
        (torch.bfloat16, {"kv_dtype": "float32"}, torch.float32),
        (torch.bfloat16, {"dtype": "float32"}, torch.float32),
        (torch.bfloat16, {"block_size": LANES + 1}, None),
        (torch.bfloat16, {"block_size": LANES + 1, "kv_dtype": "bfloat16"}, torch.bfloat16),
        (torch.bfloat16, {"compiled_steps": False}, None),
    ],
)
def test_keys_and_values_are_stored_as_the_checkpoint_is_unless_somebody_states_otherwise(
    checkpoint: torch.dtype, settings: dict[str, object], expected: torch.dtype | None, tmp_path: Path
) -> None:
    reference = make_reference("qwen3", hidden_size=96).to(checkpoint)  # type: ignore[arg-type]
    wanted = config(save_checkpoint(reference, tmp_path), **settings)
    num_threads = torch.get_num_threads()
    machine = find_machine(wanted)
    torch.set_num_threads(num_threads)
    packing = choice(wanted.model_dir, machine, **settings)
    backend = machine.backend
    model = load_model(
        wanted.model_dir, dtype=machine.dtype, device=machine.device, backend=backend, packer=packing.packer
    )

    model_or_compiled = with_compiled_steps(wanted, model, backend, packing.packer)

    kernels = cpu_kernels(model_or_compiled, machine, packing)
    assert kernels is not None
    assert kernels.steps == ("torch" if packing.packer is None else "compiled")
    assert kernels.kv_dtype == str(expected or machine.dtype).removeprefix("torch.")
    assert backend.head_major == expected  # type: ignore[attr-defined]
    assert machine.kv_element_bytes == (2 if expected == torch.bfloat16 else 4)


@pytest.mark.skipif(not pair_tiles.IS_THERE or is_permitted(), reason="the processor keeps inputs in float32")
@pytest.mark.parametrize(
    ("checkpoint", "settings", "is_paired"),
    [
        (torch.bfloat16, {}, True),
        (torch.bfloat16, {"kv_dtype": "float32"}, True),
        (torch.bfloat16, {"dtype": "float32"}, False),
        (torch.float32, {}, False),
    ],
)
def test_inputs_are_rounded_as_the_checkpoint_is_unless_float32_is_requested(
    checkpoint: torch.dtype, settings: dict[str, object], is_paired: bool, tmp_path: Path
) -> None:
    reference = make_reference("qwen3", hidden_size=96).to(checkpoint)  # type: ignore[arg-type]
    wanted = config(save_checkpoint(reference, tmp_path), **settings)
    num_threads = torch.get_num_threads()
    machine = find_machine(wanted)
    torch.set_num_threads(num_threads)
    packer, backend = choice(wanted.model_dir, machine, **settings).packer, machine.backend
    model = load_model(wanted.model_dir, dtype=machine.dtype, device=machine.device, backend=backend, packer=packer)

    found = with_compiled_steps(wanted, model, backend, packer)

    assert isinstance(found, CompiledModel)
    assert (found.shape["head"]["product"][0] == PAIRS.multiply.address) == is_paired
    assert ((found._records.layers["gate_up"]["product"] == PAIRS.multiply.address) == is_paired).all()
