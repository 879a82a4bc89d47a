"""Compiled steps compute what transformers computes, and what the same model computes step by step in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.attention.base import ForwardContext, KVCache
from engine.attention.torch_attention import TorchAttention
from engine.cpu.execution.model import CompiledModel
from engine.cpu.execution.model_records import NotCompilable, check_compilable
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.models.decoder import Decoder
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from tests.engine.models.checkpoints import VARIANTS, make_reference, save_checkpoint
from tests.engine.models.families.parity import (
    ONE_OF_EACH_FAMILY,
    PROMPT,
    TOLERANCE,
    reference_greedy,
    reference_logits,
)
from tests.engine.models.paged import CPU, PagedRunner, Row, compile_model

COMPILABLE = tuple(variant for variant in VARIANTS if variant != "phi3_longrope")
"""All but one whose rope is made for heads of 8 numbers."""
SIZES = {"hidden_size": 96, "vocab_size": 100}
"""Heads of 16 numbers in threes."""
RECURRENT = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
"""Variants with gated delta nets."""
Opener = Callable[..., PagedRunner]


def sizes_of(variant: str) -> dict[str, int]:
    """Sizes that fill registers. With wider layers, recurrent models of transformers are no nearer to exact numbers."""
    return {"vocab_size": 100, "linear_value_head_dim": 16} if variant in RECURRENT else SIZES


@pytest.fixture
def open_runner(tmp_path: Path) -> Opener:
    def open_it(variant: str, **settings: object) -> PagedRunner:
        folder = save_checkpoint(make_reference(variant, **sizes_of(variant)), tmp_path)
        return PagedRunner(folder, **settings)  # type: ignore[arg-type]

    return open_it


@pytest.mark.parametrize("variant", COMPILABLE)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_logits_equal_transformers(variant: str, num_threads: int, open_runner: Opener) -> None:
    runner = open_runner(variant, shuffle_seed=5, compiled_threads=num_threads)

    logits = runner.prefill(Row(list(PROMPT)), [13, 7, 1, 22])
    reference = make_reference(variant, **sizes_of(variant))
    if variant == "qwen3_5":  # in float32, transformers itself is further from exact numbers than the tolerance
        reference = reference.double()

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


@pytest.mark.parametrize("variant", [name for name in ONE_OF_EACH_FAMILY if name in COMPILABLE])
def test_greedy_text_equals_transformers_where_compiled_steps_come_between_others(
    variant: str, open_runner: Opener
) -> None:
    runner = open_runner(variant, shuffle_seed=3, compiled_threads=2)
    set_limit(runner, 9)
    prompts = [PROMPT[:5], PROMPT[10:50], PROMPT[3:30]]
    rows = [Row(list(prompt)) for prompt in prompts]

    # A step with nine tokens of a prompt and one of a row that decodes is too long to run compiled.
    step = 0
    while any(len(row.tokens) - len(prompt) < 64 for row, prompt in zip(rows, prompts, strict=True)):
        active = [row for index, row in enumerate(rows) if step >= 4 * index]
        work = [(row, min(9, len(row.tokens) - row.num_computed)) for row in active]
        for (row, _), logits in zip(work, runner.step(work), strict=True):
            if row.num_computed == len(row.tokens):
                row.tokens.append(int(logits[-1].argmax()))
        step += 1

    reference = make_reference(variant, **sizes_of(variant))
    for row, prompt in zip(rows, prompts, strict=True):
        assert row.tokens[len(prompt) :][:64] == reference_greedy(reference, prompt, 64)


@pytest.mark.parametrize(
    "variant",
    [*("qwen3", "mistral", "llama_biased", "gemma2", "gemma3", "olmo2", "qwen2_moe"), *("granite", "gpt_oss")],
)
def test_a_token_gets_the_same_numbers_alone_in_a_batch_and_among_drafts(variant: str, open_runner: Opener) -> None:
    runner = open_runner(variant, shuffle_seed=2, compiled_threads=2)
    alone, in_batch, other, drafted = (Row(list(PROMPT[start:40])) for start in (0, 0, 7, 0))
    expected = runner.prefill(alone, [1])

    runner.step([(in_batch, 30), (other, 20)])
    runner.step([(drafted, 30)])
    found = [
        *runner.step([(other, 1), (in_batch, 1), (drafted, 4)])[1:],
        *runner.step([(drafted, 6), (in_batch, 9)]),
    ]

    spans = [(30, 31), (30, 34), (34, 40), (31, 40)]
    for (start, end), logits in zip(spans, found, strict=True):
        assert torch.equal(logits, expected[start:end])


@pytest.mark.parametrize("longest", [33, 60])
def test_key_heads_that_are_read_together_give_the_numbers_they_give_apart(longest: int, open_runner: Opener) -> None:
    runner = open_runner("qwen3", shuffle_seed=6, compiled_threads=2, num_blocks=200)
    rows = [Row(list(PROMPT)) for _ in range(10)]
    for row, length in zip(rows, [longest, *[33] * 9], strict=True):
        runner.step([(row, length)])

    found = runner.step([(row, 1) for row in rows])

    assert runner.model._heads_together([row.num_computed for row in rows]) == (2 if longest == 33 else 1)  # type: ignore[attr-defined]
    for row, logits in zip(rows, found, strict=True):
        row.num_computed -= 1
        assert torch.equal(runner.step([(row, 1)])[0], logits)


def test_numbers_do_not_depend_on_how_many_threads_help(open_runner: Opener) -> None:
    one, three = (open_runner("qwen3", compiled_threads=count) for count in (1, 3))
    for _ in range(20):  # which thread takes what is random
        row, other = Row(list(PROMPT)), Row(list(PROMPT))
        assert torch.equal(one.prefill(row, [20, 1]), three.prefill(other, [20, 1]))
        one._free[:0], three._free[:0] = row.blocks, other.blocks


def test_logits_that_are_computed_with_the_step_are_those_that_are_requested_behind_it(
    open_runner: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = open_runner("qwen3", compiled_threads=2)
    thread_pool, num_pieces = runner.model.thread_pool, 0  # type: ignore[attr-defined]

    def counted() -> None:
        nonlocal num_pieces
        num_pieces += 1
        type(thread_pool).run(thread_pool)

    monkeypatch.setattr(thread_pool, "run", counted)
    found = []
    for runner.with_sampled in (True, False, True):
        row, before = Row(list(PROMPT)), num_pieces
        logits = runner.prefill(row, [7, 1])
        found.append((logits, num_pieces - before))
        runner._free[:0] = row.blocks
    num_steps = found[0][1]
    assert [pieces for _, pieces in found] == [num_steps, 2 * num_steps, num_steps]
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][0], found[2][0])


@pytest.mark.parametrize("sampled", [[], [20], [0, 5, 130, 160]])
def test_states_of_sampled_tokens_come_with_their_logits_whatever_parts_a_prompt_is_cut_into(
    sampled: list[int], open_runner: Opener
) -> None:
    runner = open_runner("qwen3", compiled_threads=2)
    model = runner.model
    assert isinstance(model, CompiledModel)
    model.prompt_way = "vectors"
    tokens = [1 + token % 90 for token in range(161)]
    of_all = runner.step([(Row(tokens), len(tokens))])[0]

    forward, found = model.forward, []

    def recorded(token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        found.append(forward(token_ids, replace(context, sampled=sampled), caches))
        return found[-1]

    model.forward = recorded  # type: ignore[method-assign]
    row = Row(tokens)
    runner.step([(row, len(tokens))])

    assert found[0].shape[0] == len(sampled)
    assert torch.equal(model.logits(found[0]), of_all[sampled])
    model.close()


def test_bfloat16_checkpoints_are_read_in_half_the_bytes_and_lose_nothing(tmp_path: Path) -> None:
    reference = make_reference("qwen3", **SIZES)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(parameter.bfloat16())
    folder = save_checkpoint(reference, tmp_path)
    runner = PagedRunner(folder, compiled_threads=1)

    logits = runner.prefill(Row(list(PROMPT)), [16])

    assert kinds(runner) == {"bfloat16"}
    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


def kinds(runner: PagedRunner) -> set[str]:
    """Kinds of weights of all projections."""
    assert isinstance(runner.model, CompiledModel)
    return {kind.partition(" times")[0] for kind in runner.model.products}


def test_int8_weights_are_multiplied_by_rounded_inputs_in_torch_too(tmp_path: Path) -> None:
    sizes = {"hidden_size": 192, "intermediate_size": 256, "vocab_size": 200}
    folder = save_checkpoint(make_reference("qwen2", **sizes), tmp_path)
    runner = PagedRunner(folder, compiled_threads=2, quantization="int8")
    assert isinstance(runner.model, CompiledModel)

    found = runner.prefill(Row(list(PROMPT)), [20])
    runner.model.max_tokens = 0
    in_torch = runner.prefill(Row(list(PROMPT)), [20])

    assert kinds(runner) == {"int8"}
    exact = reference_logits(make_reference("qwen2", **sizes), PROMPT)
    # Where a rounding is a tie, a sum in another order rounds to the other step.
    assert (found - in_torch).norm() < 0.02 * exact.norm()
    assert (found - exact).norm() < 0.15 * exact.norm()


def test_what_torch_stored_of_a_row_is_not_taken_for_one_that_got_its_blocks(open_runner: Opener) -> None:
    """A row decodes in torch, ends while steps run compiled, and another that is alike takes its place."""
    compiled, plain = open_runner("qwen3", compiled_threads=1), open_runner("qwen3")

    def logits(runner: PagedRunner) -> torch.Tensor:
        first, other = Row(list(PROMPT[:34])), Row(list(PROMPT[5:39]))
        set_limit(runner, 0)
        runner.step([(first, 30), (other, 30)])
        for _ in range(2):
            runner.step([(first, 1), (other, 1)])
        # What takes the first row's blocks is one token shorter than it would be by now.
        second = Row([*PROMPT[20:53]], blocks=list(first.blocks))
        set_limit(runner, 64)
        runner.step([(second, 32)])
        set_limit(runner, 0)
        return runner.step([(second, 1), (other, 1)])[0]

    assert (logits(compiled) - logits(plain)).abs().max() < TOLERANCE


def set_limit(runner: PagedRunner, max_tokens: int) -> None:
    if hasattr(runner.model, "max_tokens"):
        runner.model.max_tokens = max_tokens


def test_numbers_that_are_none_stay_with_the_row_that_made_them(open_runner: Opener) -> None:
    runner = open_runner("qwen3", compiled_threads=1)
    expected = runner.prefill(Row(list(PROMPT)), [20])
    for cache in runner.caches:
        cache.keys.fill_(float("nan"))  # type: ignore[attr-defined]
        cache.values.fill_(float("nan"))  # type: ignore[attr-defined]

    found = runner.prefill(Row(list(PROMPT)), [20])

    assert torch.equal(found, expected)


def test_a_number_that_is_none_is_seen_in_the_logits(open_runner: Opener) -> None:
    runner = open_runner("llama3", compiled_threads=1)
    row = Row(list(PROMPT))
    runner.step([(row, 20)])
    runner.caches[0].values[row.blocks[0], :, 0].fill_(float("nan"))  # type: ignore[attr-defined]

    assert runner.step([(row, 1)])[0].isnan().all()


def test_what_compiled_steps_do_not_know_is_named_before_a_weight_is_read(tmp_path: Path) -> None:
    config = read_model_config(save_checkpoint(make_reference("gemma3", **SIZES), tmp_path))
    assert config.local_rope is not None

    with pytest.raises(NotCompilable, match="its layers rotate in three ways"):
        check_compilable(replace(config, traits=replace(config.traits, unrotated_layers=frozenset({1}))))


def test_a_property_of_experts_is_named(tmp_path: Path) -> None:
    config = read_model_config(save_checkpoint(make_reference("qwen2_moe", **SIZES), tmp_path))
    assert config.traits.experts is not None
    experts = replace(config.traits.experts, has_bias=True)

    with pytest.raises(NotCompilable, match="its router has a bias beside a shared expert"):
        check_compilable(replace(config, traits=replace(config.traits, experts=experts)))


def test_divided_logits_are_capped_as_torch_caps_them(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("gemma2", **SIZES), tmp_path)
    compiled, plain = PagedRunner(folder, compiled_threads=1), PagedRunner(folder)
    assert isinstance(compiled.model, CompiledModel)
    assert isinstance(plain.model, Decoder)
    config = plain.model.config
    plain.model.config = replace(config, traits=replace(config.traits, logit_divisor=2.5))
    compiled.model.shape["logit_scale"] = 1 / 2.5

    found, expected = (runner.prefill(Row(list(PROMPT)), [20, 1]) for runner in (compiled, plain))

    assert (found - expected).abs().max() < TOLERANCE


def test_sizes_that_fill_no_register_are_named(tmp_path: Path) -> None:
    size = LANES // 2
    folder = save_checkpoint(make_reference("llama3", **SIZES, head_dim=size), tmp_path)
    backend = TorchAttention(CPU)
    model = load_model(folder, dtype=torch.float32, device=CPU, backend=backend, packer=RecordMemory())

    with pytest.raises(NotCompilable, match=f"head_dim is {size}, no multiple of {LANES}"):
        compile_model(model, backend)


def test_a_gated_delta_net_that_compiled_steps_do_not_know_is_named(tmp_path: Path) -> None:
    config = read_model_config(save_checkpoint(make_reference("qwen3_5", linear_value_head_dim=LANES + 1), tmp_path))
    recurrent = config.traits.recurrent
    assert recurrent is not None
    all_layers = replace(recurrent, layers=frozenset(range(config.num_layers)), value_dim=LANES)

    with pytest.raises(NotCompilable, match=f"linear_value_head_dim is {LANES + 1}, no multiple of {LANES}"):
        check_compilable(config)
    with pytest.raises(NotCompilable, match="all of its layers are recurrent"):
        check_compilable(replace(config, traits=replace(config.traits, recurrent=all_layers)))


def test_an_int8_pool_is_read_in_torch(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("llama3", **SIZES), tmp_path)
    quantized = TorchAttention(CPU, has_int8_kv=True)
    compiled = PagedRunner(folder, backend=quantized, compiled_threads=1)
    plain = PagedRunner(folder, backend=TorchAttention(CPU, has_int8_kv=True))

    found, expected = (runner.prefill(Row(list(PROMPT)), [20, 1]) for runner in (compiled, plain))

    assert (found - expected).abs().max() < TOLERANCE
