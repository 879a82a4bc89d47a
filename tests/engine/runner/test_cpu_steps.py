"""Which steps run compiled: those that are faster for it, as measured at the start."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.config import CoreConfig
from engine.cpu.gemm.tiles import LANES
from engine.cpu.step.prompt_mode import PromptWay
from engine.models.loading.loader import load_model
from engine.runner.cpu_steps import (
    choose_compiled_tokens,
    choose_prompt_way,
    follow,
    kept_weights,
    settle_steps,
    typical_step,
    with_compiled_steps,
)
from engine.runner.machine import Machine, find_machine
from engine.runner.warm_up import made_up_batch
from engine.step.batch import RowResult, ScheduledBatch
from tests.engine.core.fakes import FakeClock
from tests.engine.models.checkpoints import make_reference, save_checkpoint


class Steps:
    """A model and a runner of it: torch takes one time for each token, compiled steps another and a fixed one."""

    def __init__(self, torch_s: float, compiled_s: float, fixed_s: float) -> None:
        self.clock = FakeClock()
        self.max_tokens = 0
        self.prompt_way: PromptWay = "torch"
        self.prompt_ways: list[PromptWay] = ["torch", "vectors"]
        self.max_verified = 0
        self.is_released = False
        self.threads: list[tuple[bool, int]] = []
        self.num_threads = 0
        self._torch_s, self._compiled_s, self._fixed_s = torch_s, compiled_s, fixed_s

    def resize(self, num_threads: int) -> None:
        self.threads.append((True, num_threads))

    def release(self) -> None:
        self.is_released = True

    def computes(self, num_tokens: int) -> bool:
        return num_tokens <= self.max_tokens or self.prompt_way != "torch"

    def set_threads(self, num_threads: int, num_tokens: int) -> None:
        self.num_threads = num_threads
        self.threads.append((num_tokens <= self.max_tokens, num_tokens))

    def run(self, batch: ScheduledBatch) -> list[RowResult]:
        num_tokens = sum(row.num_query_tokens for row in batch.rows)
        assert self.threads[-1] == (num_tokens <= self.max_tokens, num_tokens), "threads were readied for this step"
        if num_tokens <= self.max_tokens:
            self.clock.advance(self._fixed_s + num_tokens * self._compiled_s)
        else:
            self.clock.advance(num_tokens * self._torch_s)
        return [RowResult([1]) for _ in batch.rows]


def step_of(num_tokens: int) -> ScheduledBatch:
    return made_up_batch(num_tokens, 1, 32, num_blocks=64, block_size=16)


@pytest.mark.parametrize(
    ("torch_s", "compiled_s", "fixed_s", "expected"),
    [
        (0.001, 0.0002, 0.0, 64),
        (0.001, 0.00099, 0.0, 0),  # not worth a second copy of the weights
        (0.001, 0.0002, 0.0005, 64),
        (0.001, 0.0002, 0.005, 0),  # what decides is a single row
        (0.02, 0.001, 0.0, 64),  # long steps are measured once
    ],
)
def test_steps_run_compiled_as_far_as_it_is_faster(
    torch_s: float, compiled_s: float, fixed_s: float, expected: int
) -> None:
    steps = Steps(torch_s, compiled_s, fixed_s)
    choose_compiled_tokens(steps, steps.run, step_of, steps.set_threads, steps.clock, num_threads=2)
    assert steps.max_tokens == expected
    assert steps.is_released == (expected == 0)


def test_a_tie_for_one_row_does_not_take_the_gain_from_many() -> None:
    steps = Steps(0.001, 0.0005, 0.00055)  # a single row takes five percent longer, four rows a third less
    choose_compiled_tokens(steps, steps.run, step_of, steps.set_threads, steps.clock, num_threads=2)
    assert steps.max_tokens == 64


def test_a_number_of_tokens_that_is_slower_ends_it() -> None:
    class Slower(Steps):
        def run(self, batch: ScheduledBatch) -> list[RowResult]:
            if len(batch.rows) == 16 and self.max_tokens:
                self.clock.advance(1.0)
            return super().run(batch)

    steps = Slower(0.001, 0.0002, 0.0)
    choose_compiled_tokens(steps, steps.run, step_of, steps.set_threads, steps.clock, num_threads=2)
    assert steps.max_tokens == 4


def test_what_else_the_machine_does_at_the_start_does_not_decide_for_the_life_of_the_process() -> None:
    class SetAside(Steps):
        num_compiled = 0

        def run(self, batch: ScheduledBatch) -> list[RowResult]:
            self.num_compiled += bool(self.max_tokens)
            if self.num_compiled in (3, 6, 8) and self.max_tokens:  # the first ones that are timed for one token
                self.clock.advance(0.5)
            return super().run(batch)

    steps = SetAside(0.001, 0.0002, 0.0)
    choose_compiled_tokens(steps, steps.run, step_of, steps.set_threads, steps.clock, num_threads=2)
    assert steps.max_tokens == 64


def test_threads_that_wait_for_each_other_at_the_start_do_not_decide_either() -> None:
    class Crowded(Steps):
        def run(self, batch: ScheduledBatch) -> list[RowResult]:
            if self.max_tokens and self.num_threads == 2:
                self.clock.advance(0.02)
            return super().run(batch)

    steps = Crowded(0.001, 0.0002, 0.0)
    choose_compiled_tokens(steps, steps.run, step_of, steps.set_threads, steps.clock, num_threads=2)
    assert steps.max_tokens == 64


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"torch": 3.0, "vectors": 2.0, "matrix unit": 1.0}, "matrix unit"),
        ({"torch": 3.0, "vectors": 2.0}, "vectors"),
        ({"torch": 0.02, "vectors": 0.02}, "torch"),
        ({"torch": 0.02, "vectors": 0.03, "matrix unit": 0.021}, "torch"),
    ],
)
def test_prompts_are_computed_the_way_that_takes_least_time(
    seconds: dict[PromptWay, float], expected: PromptWay
) -> None:
    class Prompts(Steps):
        num_runs = 0

        def run(self, batch: ScheduledBatch) -> list[RowResult]:
            self.num_runs += 1
            first_s = 9.0 if self.num_runs <= len(seconds) else 0.0  # which only touches memory
            self.clock.advance(seconds[self.prompt_way] + first_s)
            return []

    steps = Prompts(1.0, 1.0, 0.0)
    steps.prompt_ways = list(seconds)
    batch = made_up_batch(1, 64, 64, num_blocks=64, block_size=16)
    choose_prompt_way(steps, steps.run, batch, steps.set_threads, steps.clock, 2)
    assert steps.prompt_way == expected
    assert steps.num_runs == len(seconds) * (11 if seconds["torch"] < 1 else 3), "a step that takes long is timed once"


def test_no_way_pays_for_the_one_that_was_timed_before_it() -> None:
    class Lingering(Steps):
        before: PromptWay = "torch"

        def run(self, batch: ScheduledBatch) -> list[RowResult]:
            # Torch's threads still look for work on the cores of whoever comes next.
            lost_s = 0.01 if self.before == "torch" != self.prompt_way else 0.0
            self.clock.advance(lost_s + (0.003 if self.prompt_way == "torch" else 0.002))
            self.before = self.prompt_way
            return []

    steps = Lingering(1.0, 1.0, 0.0)
    batch = made_up_batch(1, 64, 64, num_blocks=64, block_size=16)
    choose_prompt_way(steps, steps.run, batch, steps.set_threads, steps.clock, 2)
    assert steps.prompt_way == "vectors"


def config(folder: Path, **settings: object) -> CoreConfig:
    return CoreConfig.of(model_dir=folder, device="cpu", **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    return tmp_path


@pytest.fixture
def machine(folder: Path) -> Machine:
    num_threads = torch.get_num_threads()
    found = find_machine(config(folder))
    torch.set_num_threads(num_threads)
    return found


@pytest.mark.parametrize("settings", [{}, {"quantization": "int8"}, {"quantization": "int8_dynamic"}])
def test_weights_are_kept_for_compiled_steps(folder: Path, machine: Machine, settings: dict[str, str]) -> None:
    assert kept_weights(config(folder, **settings), machine, folder) is not None


@pytest.mark.parametrize(
    "settings",
    [{"compiled_steps": False}, {"quantization": "int4"}, {"tensor_parallel": 2}],
)
def test_no_weights_are_kept_where_no_step_will_run_compiled(
    folder: Path, machine: Machine, settings: dict[str, object]
) -> None:
    assert kept_weights(config(folder, **settings), machine, folder) is None


def test_no_weights_are_kept_of_a_model_that_is_large(
    folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runner.cpu_steps._MAX_WEIGHT_BYTES", 99)
    assert kept_weights(config(folder), machine, folder) is None


def test_a_step_has_as_many_rows_as_there_may_be_and_the_rest_in_tokens() -> None:
    from engine.runner.cpu_steps import _step_of

    make_step = typical_step(CoreConfig.of(model_dir=Path()), 64, 512)
    shapes = [_step_of(make_step, 8, count).shape() for count in (1, 4, 16, 64)]
    assert [(len(_step_of(make_step, 8, count).rows)) for count in (1, 4, 16, 64)] == [1, 4, 8, 8]
    assert [shape.num_decode_rows + shape.num_prefill_tokens for shape in shapes] == [1, 4, 16, 64]


def test_a_draft_model_runs_compiled_as_far_as_the_one_it_drafts_for() -> None:
    model, draft = Steps(1.0, 1.0, 0.0), Steps(1.0, 1.0, 0.0)
    model.max_tokens, model.prompt_way, model.max_verified = 16, "vectors", 5
    follow(draft, model)  # type: ignore[arg-type]
    assert (draft.max_tokens, draft.prompt_way, draft.max_verified) == (16, "vectors", 5)
    follow(None, model)  # type: ignore[arg-type]


def test_torch_computes_what_is_left_of_a_compiled_step_on_one_thread() -> None:
    """Its threads would wait for each other, and for a core that compiled steps use."""
    seen: list[tuple[int, int]] = []
    before = torch.get_num_threads()

    class Model:
        max_tokens = 0
        prompt_way = "torch"
        prompt_ways = ("torch",)
        max_verified = 0

        def computes(self, num_tokens: int) -> bool:
            return num_tokens <= self.max_tokens

        def resize(self, num_threads: int) -> None:
            pass

        def release(self) -> None:
            raise AssertionError("compiled steps are faster")

    model = Model()
    clock = FakeClock()

    class Runner:
        def run(self, batch: ScheduledBatch) -> list[RowResult]:
            num_tokens = sum(row.num_query_tokens for row in batch.rows)
            seen.append((num_tokens, torch.get_num_threads()))
            clock.advance(0.0001 if num_tokens <= model.max_tokens else 0.001 * num_tokens / torch.get_num_threads())
            return [RowResult([1]) for _ in batch.rows]

    try:
        torch.set_num_threads(2)
        make_step = typical_step(CoreConfig.of(model_dir=Path()), 64, 512)
        limits = {"max_rows": 64, "prompt_tokens": 256, "max_drafts": 8}
        runner = settle_steps(model, Runner(), make_step, clock=clock, **limits)  # type: ignore[arg-type]
        seen.clear()
        for num_rows, num_tokens in ((1, 1), (64, 1), (1, 65), (2, 1)):
            runner.run(make_step(num_rows, num_tokens))
        assert seen == [(1, 1), (64, 1), (65, 2), (2, 1)]
        assert model.max_verified == 9
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("checkpoint", "settings", "expected"),
    [
        (torch.bfloat16, {}, torch.bfloat16),
        (torch.float32, {}, torch.float32),
        (torch.float32, {"kv_dtype": "bfloat16"}, torch.bfloat16),
        (torch.bfloat16, {"kv_dtype": "float32"}, torch.float32),
        (torch.bfloat16, {"dtype": "float32"}, torch.float32),
        (torch.bfloat16, {"block_size": LANES + 1}, None),
        (torch.bfloat16, {"block_size": LANES + 1, "kv_dtype": "bfloat16"}, torch.bfloat16),
        (torch.bfloat16, {"compiled_steps": False}, None),
    ],
)
def test_keys_and_values_are_kept_as_the_checkpoint_is_unless_somebody_says_otherwise(
    checkpoint: torch.dtype, settings: dict[str, object], expected: torch.dtype | None, tmp_path: Path
) -> None:
    reference = make_reference("qwen3", hidden_size=96).to(checkpoint)  # type: ignore[arg-type]
    wanted = config(save_checkpoint(reference, tmp_path), **settings)
    num_threads = torch.get_num_threads()
    machine = find_machine(wanted)
    torch.set_num_threads(num_threads)
    kept = kept_weights(wanted, machine, wanted.model_dir)
    backend = machine.backend
    model = load_model(wanted.model_dir, dtype=machine.dtype, device=machine.device, backend=backend, kept=kept)

    with_compiled_steps(wanted, model, backend, kept)

    assert backend.head_major == expected  # type: ignore[attr-defined]
    assert machine.kv_element_bytes == (2 if expected == torch.bfloat16 else 4)
