"""Gated delta nets within compiled steps: numbers and states of torch, however a prompt is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cpu.execution.model import CompiledModel
from engine.cpu.step.prompt_mode import PromptWay
from engine.kv_cache.state_slots import StateSlots
from engine.models.decoder import Decoder
from engine.models.recurrent_layer import RecurrentLayer, StateMemory
from tests.engine.cpu.execution.test_model import RECURRENT, sizes_of
from tests.engine.cpu.execution.test_prompt_rows import show_states
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import TOLERANCE
from tests.engine.models.paged import PagedRunner, Row

PROMPT = [(index * 37 + index // 7) % 97 for index in range(200)]
WAYS = ["vectors", "matrix unit"]
BLOCK_SIZE = 16


def open_runner(folder: Path, threads: int, way: PromptWay = "vectors") -> PagedRunner:
    runner = PagedRunner(folder, block_size=BLOCK_SIZE, shuffle_seed=4, compiled_threads=threads)
    set_way(runner, way)
    return runner


def set_way(runner: PagedRunner, way: PromptWay) -> None:
    if isinstance(runner.model, CompiledModel):
        runner.model.prompt_way = way


def make_checkpoint(folder: Path, variant: str = "qwen3_5", **changes: Any) -> Path:
    return save_checkpoint(make_reference(variant, **{**sizes_of(variant), **changes}), folder)


def memories(runner: PagedRunner) -> list[StateMemory]:
    model = runner.model.decoder if isinstance(runner.model, CompiledModel) else runner.model
    assert isinstance(model, Decoder)
    return [layer.mixer.memory for layer in model.layers if isinstance(layer, RecurrentLayer)]


def work(rows: list[Row], counts: list[int]) -> list[tuple[Row, int]]:
    return list(zip(rows, counts, strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("variant", RECURRENT)
def test_states_and_saved_ones_equal_torchs(variant: str, way: PromptWay, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, variant)
    compiled, plain = open_runner(folder, 2, way), open_runner(folder, 0)

    found, expected = (run_three_rows(runner) for runner in (compiled, plain))

    assert (found - expected).abs().max() < 3 * TOLERANCE
    for one, other in zip(memories(compiled), memories(plain), strict=True):
        # Steps wrote the same slots: those of rows, and those saved at block borders.
        assert one.states.shape == other.states.shape
        assert (one.states.flatten(1).any(1) == other.states.flatten(1).any(1)).all()
        assert (one.states - other.states).abs().max() < TOLERANCE
        assert (one.inputs - other.inputs).abs().max() < TOLERANCE


def run_three_rows(runner: PagedRunner) -> torch.Tensor:
    """Logits of a long prompt, which is cut, and of rows that decode beside it."""
    rows = [Row(PROMPT[start:]) for start in range(3)]
    steps = ([150, 20, 3], [40, 1, 40], [1, 1, 1])
    return torch.cat([logits for counts in steps for logits in runner.step(work(rows, counts), [1, 1, 1])])


@pytest.mark.parametrize("way", WAYS)
def test_a_token_gets_the_same_numbers_however_its_prompt_is_cut_and_beside_whom(
    way: PromptWay, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path, num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["full_attention"])
    runner, alone = open_runner(folder, 3, way), open_runner(folder, 1, way)
    for one in (runner, alone):
        show_states(one)

    expected = runner.prefill(Row(list(PROMPT)), [200])

    assert torch.equal(alone.prefill(Row(list(PROMPT)), [71, 1, 64]), expected)
    rows = [Row(list(PROMPT)), Row(PROMPT[:140]), Row(list(PROMPT))]
    runner.step([(rows[0], 50), (rows[2], 30)])
    together = runner.step(work(rows, [1, 140, 100]))
    assert torch.equal(together[0], expected[50:51])
    assert torch.equal(together[1], expected[:140])
    assert torch.equal(together[2], expected[30:130])


@pytest.mark.parametrize("last", ["linear_attention", "full_attention"])
@pytest.mark.parametrize("way", WAYS)
def test_sampled_tokens_get_the_numbers_they_get_where_all_are_sampled(
    way: PromptWay, last: str, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path, layer_types=["full_attention", "linear_attention", last])
    lengths, num_sampled = [1, 20, 18, 5, 60, 3], [1, 1, 0, 5, 3, 0]

    expected, found = (run_six_rows(folder, way, lengths, counts) for counts in (None, num_sampled))

    assert [len(states) for states in found[:6]] == num_sampled
    for states, all_states in zip(found, expected, strict=True):
        assert torch.equal(states, all_states[len(all_states) - len(states) :])


def run_six_rows(folder: Path, way: PromptWay, lengths: list[int], num_sampled: list[int] | None) -> list[torch.Tensor]:
    """Hidden states of a step behind 30 tokens of each row, and of one that reads what it wrote."""
    runner = open_runner(folder, 2, way)
    show_states(runner)
    rows = [Row(PROMPT[start:120]) for start in range(6)]
    runner.step([(row, 30) for row in rows])
    found = runner.step(work(rows, lengths), num_sampled)
    return found + runner.step([(row, 7) for row in rows])


def test_steps_in_torch_and_compiled_ones_go_on_from_each_others_states(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    runner, plain = open_runner(folder, 2), open_runner(folder, 0)
    expected = plain.prefill(Row(list(PROMPT)), [60])
    assert isinstance(runner.model, CompiledModel)
    row, found = Row(list(PROMPT)), []

    for count, limit in ((40, 0), (30, 64), (1, 0), (1, 64), (50, 64), (78, 0)):
        runner.model.max_tokens, runner.model.prompt_way = limit, "vectors" if limit else "torch"
        found.append(runner.step([(row, count)])[0])

    assert (torch.cat(found) - expected).abs().max() < 3 * TOLERANCE


def test_a_step_can_be_computed_again(tmp_path: Path) -> None:
    runner = open_runner(make_checkpoint(tmp_path), 2)
    row = Row(list(PROMPT))
    runner.step([(row, 13)])

    first = runner.step([(row, 180)])[0]
    row.num_computed -= 180

    assert torch.equal(runner.step([(row, 180)])[0], first)


def test_value_heads_may_be_tiled_as_in_gguf_files(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    paired = open_runner(folder, 1).prefill(Row(PROMPT[:50]), [50])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "linear_value_heads_are_tiled": True}))

    found, expected = (open_runner(folder, threads).prefill(Row(PROMPT[:50]), [50]) for threads in (2, 0))

    assert (found - expected).abs().max() < TOLERANCE
    assert (paired - expected).abs().max() > 100 * TOLERANCE


@pytest.mark.parametrize(
    "changes",
    [
        {"linear_conv_kernel_dim": 2, "linear_key_head_dim": 20},
        {"linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_value_head_dim": 80},
        {"linear_num_key_heads": 1, "linear_num_value_heads": 5, "attention_bias": True},
    ],
    ids=["short convolution", "a key head for each value head", "one key head and biases"],
)
def test_other_shapes_equal_torchs(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, **changes)

    found, expected = (open_runner(folder, threads).prefill(Row(PROMPT[:150]), [140, 1]) for threads in (2, 0))

    assert (found - expected).abs().max() < 3 * TOLERANCE


def test_more_rows_than_are_computed_together_equal_torchs(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)

    found, expected = (decode_150_rows(folder, threads) for threads in (2, 0))

    assert (found - expected).abs().max() < TOLERANCE


def decode_150_rows(folder: Path, threads: int) -> torch.Tensor:
    runner = PagedRunner(folder, num_blocks=300, block_size=BLOCK_SIZE, compiled_threads=threads)
    set_way(runner, "vectors")
    runner.states = StateSlots(150, BLOCK_SIZE)
    rows = [Row(PROMPT[start:]) for start in range(150)]
    runner.step([(row, 2) for row in rows])
    return torch.cat(runner.step([(row, 1) for row in rows]))


def test_a_state_that_holds_no_numbers_is_not_read_by_a_row_that_begins(tmp_path: Path) -> None:
    runner = open_runner(make_checkpoint(tmp_path), 1)
    expected = runner.prefill(Row(list(PROMPT)), [50])
    for memory in memories(runner):
        memory.states.fill_(float("nan"))
        memory.inputs.fill_(float("nan"))

    assert torch.equal(runner.prefill(Row(list(PROMPT)), [50]), expected)


def test_states_are_required(tmp_path: Path) -> None:
    runner = open_runner(make_checkpoint(tmp_path), 1)
    runner.states = None

    with pytest.raises(RuntimeError, match="recurrent layers need the states"):
        runner.step([(Row(list(PROMPT)), 5)])
