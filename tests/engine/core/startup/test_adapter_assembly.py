"""Over a real (tiny) model: answers with adapters are those of merged weights, whatever runs beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import Qwen3ForCausalLM

from engine.protocol import AdapterReport, Add, Fatal, LoadAdapter, Shutdown, StepReport, UnloadAdapter
from engine.spec_decode.proposers.medusa import MedusaProposer
from engine.step.drafting import Drafter
from tests.engine.core.test_process import Front, core_thread, greedy_add
from tests.engine.core.test_speculative_decoding import KnowingHeads, controller, free_drafts, known_drafts, speculator
from tests.engine.core.tiny_core import PROMPTS, SHARED, TinyCore
from tests.engine.lora.adapters import ATTENTION, MODULES, merged, write_adapter

_TIMEOUT_S = 60.0
OWNERS: list[str | None] = ["first", None, "second", "first"]


@dataclass
class Adapted:
    """A base, adapters by name, and the answers of the merged models to `PROMPTS`, as `OWNERS` own them."""

    base: Path
    folders: dict[str, Path]
    expected: list[list[int]]


@pytest.fixture(scope="module")
def adapted(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    folder = tmp_path_factory.mktemp("adapters")
    base: Any = Qwen3ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    folders: dict[str, Path] = {}
    answers: dict[str | None, list[list[int]]] = {None: TinyCore(checkpoint).answers(PROMPTS)}
    for seed, (name, modules) in enumerate({"first": MODULES, "second": ATTENTION}.items()):
        folders[name] = folder / name
        deltas = write_adapter(folders[name], base, rank=8, seed=seed, modules=modules)
        merged(base, deltas).save_pretrained(folder / f"{name}-merged")
        answers[name] = TinyCore(folder / f"{name}-merged").answers(PROMPTS)
    expected = [answers[owner][index] for index, owner in enumerate(OWNERS)]
    assert len({tuple(answers[name][0]) for name in answers}) == 3
    return Adapted(checkpoint, folders, expected)


@pytest.mark.parametrize("compiled_threads", [0, 1])
@pytest.mark.parametrize("budget", [512, 16])
def test_several_adapters_and_the_base_answer_in_one_batch(
    adapted: Adapted, compiled_threads: int, budget: int
) -> None:
    core = TinyCore(adapted.base, adapters=adapted.folders, compiled_threads=compiled_threads, budget=budget)
    assert core.answers(PROMPTS, OWNERS) == adapted.expected
    assert core.tally.adapter_steps > 0


@pytest.mark.parametrize("with_heads", [False, True])
def test_draft_tokens_change_no_answer_with_adapters(adapted: Adapted, with_heads: bool) -> None:
    def with_drafts(core: TinyCore) -> Drafter:
        if not with_heads:
            return known_drafts(PROMPTS, adapted.expected, seed=1)(core)
        core.runner.heads = MedusaProposer(KnowingHeads(core, adapted.expected))
        return controller(free_drafts(core), heads=True)

    core = TinyCore(adapted.base, adapters=adapted.folders, drafter=with_drafts)
    assert core.answers(PROMPTS, OWNERS) == adapted.expected
    assert core.tally.accepted_tokens > 0


def test_a_draft_model_without_the_adapter_changes_no_answer(adapted: Adapted) -> None:
    core = TinyCore(adapted.base, adapters=adapted.folders, drafter=speculator(adapted.base))
    assert core.answers(PROMPTS, OWNERS) == adapted.expected
    assert core.answers(PROMPTS, OWNERS) == adapted.expected
    assert core.tally.drafted_tokens > core.tally.accepted_tokens


def test_prefixes_are_shared_within_an_adapter_only(adapted: Adapted) -> None:
    core = TinyCore(adapted.base, adapters=adapted.folders)
    alone = {owner: TinyCore(adapted.base, adapters=adapted.folders).answers(SHARED[:1], [owner]) for owner in OWNERS}
    for owner in ("first", None, "second", "first", None):
        before = core.tally.prefix_hit_tokens
        assert core.answers(SHARED[:1], [owner]) == alone[owner]
        seen = [output for output in core.outputs if output.stages is not None]
        assert (core.tally.prefix_hit_tokens > before) == (len(seen) > 3)


def test_an_unknown_adapter_is_an_error_of_its_own(adapted: Adapted) -> None:
    core = TinyCore(adapted.base)
    core.scheduler.add(_add(1, "first"), 0.0)
    (output,) = core.scheduler.take_outputs()
    assert output.error == "adapter 'first' is not loaded"


def test_the_deadline_of_an_unload_ends_what_still_runs(adapted: Adapted) -> None:
    core = TinyCore(adapted.base, adapters=adapted.folders)
    core.scheduler.add(_add(1, "first"), 0.0)
    core.scheduler.add(_add(2, None), 0.0)
    core.scheduler.schedule(0.0)
    core.scheduler.change_adapter(UnloadAdapter(name="first", deadline_s=5.0), 1.0)
    core.scheduler.schedule(5.9)
    assert core.scheduler.take_adapter_reports() == []

    core.scheduler.schedule(6.1)

    assert core.scheduler.take_adapter_reports() == [AdapterReport(name="first", change="unloaded")]
    (output,) = core.scheduler.take_outputs()
    assert (output.seq_id, output.finish_reason) == (1, "abort")
    assert [seq.seq_id for seq in core.scheduler.running()] == [2]


def _add(seq_id: int, adapter: str | None) -> Add:
    return msgspec.structs.replace(greedy_add(seq_id, [5] * 8, 8), adapter=adapter)


def _answer(front: Front, seq_id: int) -> list[int]:
    token_ids: list[int] = []
    while True:
        for output in front.step().outputs:
            assert output.error is None
            token_ids += output.token_ids
            if output.seq_id == seq_id and output.finish_reason is not None:
                return token_ids


def _change(front: Front) -> AdapterReport:
    while True:
        message = front.receive()
        if isinstance(message, StepReport) and message.adapters:
            return message.adapters[0]


@pytest.mark.e2e
def test_a_core_loads_adapters_at_the_start_and_while_it_runs(adapted: Adapted, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_blocks": 64, "max_num_seqs": 4, "lora": [f"first={adapted.folders['first']}"]}
    with core_thread(model_dir=str(adapted.base), device="cpu", num_threads=1, max_loras=2, **settings) as (
        front,
        status,
    ):
        _, ready = front.wait_until_ready()
        assert ([*ready.adapters], ready.max_loras) == (["first"], 2)
        front.send(_with(1, PROMPTS[0], "first"))
        assert _answer(front, 1) == adapted.expected[0]

        front.send(LoadAdapter(name="second", path=str(adapted.folders["second"])))
        loaded = _change(front)
        assert loaded == AdapterReport(name="second", change="loaded", digest=loaded.digest)
        assert len(loaded.digest) == len(ready.adapters["first"]) == 16
        assert loaded.digest != ready.adapters["first"]
        front.send(_with(2, PROMPTS[2], "second"))
        assert _answer(front, 2) == adapted.expected[2]

        front.send(UnloadAdapter(name="first", deadline_s=1.0))
        assert _change(front) == AdapterReport(name="first", change="unloaded")
        front.send(LoadAdapter(name="third", path=str(tmp_path)))
        report = _change(front)
        assert report.change == "refused"
        assert "adapter_config.json: no such file" in (report.error or "")
        front.send(_with(3, PROMPTS[1], None))
        assert _answer(front, 3) == adapted.expected[1]
        front.send(Shutdown())
        assert status.result(_TIMEOUT_S) == 0


def _with(seq_id: int, prompt: list[int], adapter: str | None) -> Add:
    return msgspec.structs.replace(greedy_add(seq_id, prompt, 16), adapter=adapter)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora": ["one=/nowhere"]}, "lora: one: .*no such file"),
        ({"lora": ["one"]}, "lora: expected NAME=PATH"),
        ({"lora": ["a:b=/x"]}, "lora: expected NAME=PATH"),
        ({"lora": ["a=/x", "a=/y"]}, "are not all different"),
        ({"lora": ["a=/x", "b=/y"], "max_loras": 1}, "max_loras: 2 adapters are named, got 1"),
        ({"max_loras": 2, "lora_memory_bytes": 1000}, "lora_memory_bytes: 2 adapters of rank 16 take"),
        ({"max_loras": 2, "tensor_parallel": 2}, "max_loras: adapters do not go with tensor_parallel"),
        ({"lora_dir": "/tmp"}, "lora_dir: needs max_loras above 0"),
        ({"max_lora_rank": 0}, "max_lora_rank: expected a positive integer"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], message: str, checkpoint: Path) -> None:
    with core_thread(model_dir=str(checkpoint), device="cpu", num_threads=1, **settings) as (front, status):
        found = front.receive_after_progress()
        assert isinstance(found, Fatal)
        assert found.is_settings
        assert re.search(message, found.message), found.message
        assert status.result(_TIMEOUT_S) == 1
