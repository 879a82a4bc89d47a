"""The engine's metrics: names, labels, and totals that go on."""

from __future__ import annotations

import asyncio

import pytest

from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.metrics import EngineMetrics, prompt_bucket
from engine.frontend.core_client.queue_guard import QueueLimits
from engine.protocol import Counters, StepReport
from tests.engine.frontend.conftest import Running, chat
from tests.engine.frontend.fake_core import LOAD, STAGES
from tests.engine.frontend.tiny_model import END


async def test_metrics_have_the_names_and_labels_of_the_contract(running: Running) -> None:
    core = await running.core()
    request = asyncio.create_task(running.client.post("/v1/chat/completions", json=chat(stream=True)))
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    core.emit(add.seq_id, running.ids(" world"))
    core.emit(add.seq_id, [END], "stop")
    await request
    core.step([], freed=[(99, "decode", 0.01)])
    client = await running.raw("GET", "/livez")
    await client.read_until(b"alive")
    await client.leave()
    text = (await running.client.get("/metrics")).text
    labels = '{lane="interactive",prompt_bucket="0-256"}'
    for name in ("ttft", "itl", "chunk_gap", "tpot", "e2e", "queue", "prefill", "decode"):
        assert f"engine_{name}_seconds_count{labels}" in text
    assert f"engine_prefill_seconds_sum{labels} {STAGES.prefill_s}" in text
    for line in (
        "engine_running 1.0", "engine_waiting 0.0", "engine_kv_blocks_total 100.0", "engine_kv_blocks_free 75.0",
        "engine_kv_blocks_cached 10.0", "engine_kv_utilization 0.25", "engine_kv_leaked_blocks 0.0",
        "engine_prefix_cache_queries_tokens_total 0.0", "engine_prefix_cache_hits_tokens_total 0.0",
        "engine_speculation_drafted_tokens_total 0.0", "engine_speculation_accepted_tokens_total 0.0",
        "engine_speculation_enabled 1.0", "engine_preemptions_total 0.0", "engine_prompt_tokens_total 10.0",
        "engine_generation_tokens_total 5.0", 'engine_startup_seconds{phase="weights"} 0.25',
        'engine_aborts_total{state="decode"} 1.0', 'engine_aborts_total{state="queued"} 0.0',
        'engine_abort_to_free_seconds_count{state="grammar"} 0.0',
        'engine_abort_to_free_seconds_count{state="decode"} 1.0', "engine_step_seconds_count 1.0",
        "engine_detokenize_seconds_count 1.0",
        'engine_cpu_kernels_info{kv_dtype="bfloat16",products="3 by int8",reason="",resumes="exact",steps="compiled",',
        'engine_stage_counts_total{kind="cached_tokens",lane="interactive",prompt_bucket="0-256"}',
        'engine_ttft_seconds_bucket{lane="interactive",le="0.0001",',
    ):  # fmt: skip
        assert line in text


async def test_totals_go_on_when_the_core_is_replaced(running: Running) -> None:
    core = await running.core()
    core.step([])
    while "engine_generation_tokens_total 5.0" not in (await running.client.get("/metrics")).text:
        await asyncio.sleep(0.005)
    core.die()
    second = await running.core()
    second.step([])
    while "engine_generation_tokens_total 10.0" not in (await running.client.get("/metrics")).text:
        await asyncio.sleep(0.005)


def value(metrics: EngineMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("num_tokens", "bucket"),
    [(0, "0-256"), (256, "0-256"), (257, "256-1k"), (4096, "1k-4k"), (16384, "4k-16k"), (16385, "16k+")],
)
def test_an_upper_end_belongs_to_the_lower_bucket(num_tokens: int, bucket: str) -> None:
    assert prompt_bucket(num_tokens) == bucket


def test_an_output_of_several_tokens_is_one_chunk_and_as_many_equal_gaps() -> None:
    metrics = EngineMetrics()
    metrics.for_request(10, "batch").gap(0.6, 3)
    labels = {"prompt_bucket": "0-256", "lane": "batch"}
    assert value(metrics, "engine_chunk_gap_seconds_count", **labels) == 1.0
    assert value(metrics, "engine_itl_seconds_count", **labels) == 3.0
    assert value(metrics, "engine_itl_seconds_sum", **labels) == pytest.approx(0.6)


def test_a_report_without_a_new_step_is_no_step() -> None:
    metrics = EngineMetrics()
    for steps in (1, 1, 2):
        metrics.stepped(StepReport(outputs=[], load=LOAD, counters=Counters(steps=steps)))
    assert value(metrics, "engine_step_seconds_count") == 2.0


def test_a_core_that_is_lost_leaves_its_totals_and_the_next_one_adds_to_them() -> None:
    metrics = EngineMetrics()
    link = CoreLink(metrics, lambda: 0.0, QueueLimits(max_waiting=4))
    metrics.expose_core(link)
    for tokens in (7, 5):
        link.received(StepReport(outputs=[], load=LOAD, counters=Counters(generation_tokens=tokens, steps=1)))
        link.core_lost("it ended")
    assert value(metrics, "engine_generation_tokens_total") == 12.0
    assert value(metrics, "engine_step_seconds_count") == 2.0
    assert value(metrics, "engine_running") == 0.0
