"""Recurrent states behind a real scheduler: prefix reuse, chunks and preemption change no answer."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.core.fault_isolation import FaultIsolation
from engine.protocol import Fatal, Shutdown
from tests.engine.core.checkpoints import MAX_MODEL_LEN, VOCAB_SIZE
from tests.engine.core.test_process import core_thread, greedy_add
from tests.engine.core.tiny_core import PROMPTS, TinyCore
from tests.engine.models.checkpoints import make_reference, save_checkpoint

TIMEOUT_S = 60.0
IN_TORCH_AND_COMPILED = pytest.mark.parametrize("threads", [0, 2], ids=["in torch", "compiled"])
"""Threads of compiled steps, whose blocks have 16 tokens instead of 8; 0: steps run in torch."""


@pytest.fixture(scope="module")
def reference() -> PreTrainedModel:
    sizes = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": MAX_MODEL_LEN, "linear_value_head_dim": 16}
    return make_reference("qwen3_5", **sizes)


@pytest.fixture(scope="module")
def folder(reference: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(reference, tmp_path_factory.mktemp("qwen3_5"))


def greedy(model: PreTrainedModel, prompt: SequenceOf[int], num_tokens: int = 16) -> list[int]:
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(num_tokens):
            tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


@IN_TORCH_AND_COMPILED
@pytest.mark.parametrize("budget", [512, 11], ids=["whole prompts", "chunks"])
def test_answers_equal_transformers(budget: int, threads: int, folder: Path, reference: PreTrainedModel) -> None:
    core = TinyCore(folder, budget=budget, compiled_threads=threads)

    assert core.answers(PROMPTS) == [greedy(reference, prompt) for prompt in PROMPTS]


@IN_TORCH_AND_COMPILED
def test_prompts_that_begin_alike_begin_behind_a_saved_state(
    threads: int, folder: Path, reference: PreTrainedModel
) -> None:
    core = TinyCore(folder, compiled_threads=threads)

    prompts = [PROMPTS[3][:43] + tail for tail in ([5] * 9, [6] * 3, [7] * 20)]

    answers = [core.answers([prompt])[0] for prompt in prompts]

    assert answers == [greedy(reference, prompt) for prompt in prompts]
    cached = [output.stages.num_cached_tokens for output in core.outputs if output.stages is not None]
    # The second prompt shows where others begin alike; the third finds the state there.
    assert cached == [0, 0, 32 if threads else 40]
    assert core.num_leaked == 0


@IN_TORCH_AND_COMPILED
def test_the_same_prompt_again_computes_its_last_block_alone(
    threads: int, folder: Path, reference: PreTrainedModel
) -> None:
    core = TinyCore(folder, compiled_threads=threads)
    prompt = PROMPTS[2][:32]

    answers = [core.answers([prompt])[0] for _ in range(3)]

    assert answers == [greedy(reference, prompt)] * 3
    cached = [output.stages.num_cached_tokens for output in core.outputs if output.stages is not None]
    assert cached == ([0, 16, 16] if threads else [0, 24, 24])


@IN_TORCH_AND_COMPILED
def test_preempted_sequences_are_computed_again_from_saved_states(
    threads: int, folder: Path, reference: PreTrainedModel
) -> None:
    core = TinyCore(folder, num_blocks=6 if threads else 14, compiled_threads=threads)

    answers = core.answers(PROMPTS, max_tokens=24)

    assert answers == [greedy(reference, prompt, 24) for prompt in PROMPTS]
    assert any(output.stages.num_preemptions for output in core.outputs if output.stages is not None)


@IN_TORCH_AND_COMPILED
def test_a_failed_step_is_computed_again(threads: int, folder: Path, reference: PreTrainedModel) -> None:
    core = TinyCore(folder, compiled_threads=threads)
    forward, num_calls = core.model.forward, 0

    def fail_at_times(*arguments: object) -> torch.Tensor:
        nonlocal num_calls
        num_calls += 1
        hidden = forward(*arguments)  # type: ignore[arg-type]
        if num_calls in (2, 7):
            raise RuntimeError("after the states were written")
        return hidden

    core.model.forward = fail_at_times  # type: ignore[assignment, method-assign]
    core.runner = FaultIsolation(core.runner, core.scheduler.check_integrity)  # type: ignore[assignment]

    assert core.answers(PROMPTS) == [greedy(reference, prompt) for prompt in PROMPTS]


@pytest.mark.e2e
def test_a_core_serves_and_refuses_what_states_do_not_allow(folder: Path, reference: PreTrainedModel) -> None:
    settings = {"model_dir": str(folder), "device": "cpu", "num_threads": 1, "num_blocks": 32, "max_num_seqs": 4}
    with core_thread(**settings) as (front, status):
        _, ready = front.wait_until_ready()
        assert ready.cpu_kernels is not None
        assert ready.cpu_kernels.steps == "compiled"
        for seq_id in (1, 2):
            front.send(greedy_add(seq_id, PROMPTS[1], 4))
            tokens: list[int] = []
            while len(tokens) < 4:
                tokens += [token for output in front.step().outputs for token in output.token_ids]
            assert tokens == greedy(reference, PROMPTS[1], 4)
        front.send(Shutdown())
        assert status.result(TIMEOUT_S) == 0
    for refused, reason in (
        ({"speculation": "ngram"}, "speculation: rejected tokens cannot leave a recurrent state"),
        ({"max_loras": 1}, "max_loras: adapters of models with recurrent layers are not served"),
    ):
        with core_thread(**settings, **refused) as (front, status):
            message = front.receive_after_progress()
            assert isinstance(message, Fatal)
            assert reason in message.message
            assert status.result(TIMEOUT_S) == 1
