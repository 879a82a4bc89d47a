"""The compiled kernels, in the number formats and at the sizes that are served, against torch in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from engine.attention.base import AttentionSpec
from engine.attention.gated_delta import DeltaInputs, advance, normalize_keys
from engine.attention.step_states import StateUse, StepStates
from engine.attention.triton_paged import TritonPagedAttention
from engine.kernels.choose_tokens import TritonChooser
from engine.kernels.gated_delta_rule import advance_states
from engine.kernels.token_adapters import add_token_products
from engine.models.fused_layers import FusedRMSNorm, gate_fused
from engine.models.loading.loader import load_model
from engine.models.mlp import gate_in_place
from engine.quantization.float8 import FLOAT8, quantize_outputs
from engine.quantization.kernels import UnpackBuffer
from engine.quantization.triton_kernels import TritonBytes, TritonInt4
from engine.quantization.weights import GroupWeight, quantize_channels, quantize_groups
from engine.runner.cuda_graphs import CudaGraphApi, GraphedModel
from engine.runner.graph_buckets import BucketLimits
from engine.sampling.device_choice import TorchChooser
from engine.sampling.noise import stream_key
from tests.engine.attention.reference import make_batch, reference_attention
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.quantization.test_triton_kernels import as_read

STEPS = {
    "decode": [(1023, 1)] * 4 + [(17, 1)],
    "long decode": [(9000, 1)],
    "verification": [(700, 9), (33, 5), (8, 1)],
    "mixed": [(2000, 1), (40, 1), (0, 300), (512, 100)],
}


@pytest.mark.parametrize("rows", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(32, 8, 128), (8, 1, 64), (14, 2, 96)])
@pytest.mark.parametrize(
    ("kv_dtype", "tolerance"), [(None, 0.006), (torch.int8, 0.015), (torch.float8_e4m3fn, 0.05)], ids=str
)
def test_attention(
    device: torch.device,
    rows: list[tuple[int, int]],
    heads: int,
    kv_heads: int,
    head_dim: int,
    kv_dtype: torch.dtype | None,
    tolerance: float,
) -> None:
    if kv_dtype == torch.float8_e4m3fn and torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("needs compute capability 8.9")
    spec = AttentionSpec(heads, kv_heads, head_dim, head_dim**-0.5)
    small = [(min(past, 600), new) for past, new in rows]  # the reference is a Python loop
    batch = make_batch(spec, small, block_size=16, seed=1, is_scattered=True)
    backend = TritonPagedAttention(device=device, num_processors=132, kv_dtype=kv_dtype)
    cache = backend.allocate(batch.num_blocks, 16, spec, torch.bfloat16)
    put = {"device": device, "dtype": torch.bfloat16}
    cache.write(batch.past_keys.to(**put), batch.past_values.to(**put), batch.past_slots.to(device))  # type: ignore[call-overload]
    backend.prepare(batch.context)

    out = backend.forward(batch.queries.to(**put), batch.keys.to(**put), batch.values.to(**put), cache, spec)  # type: ignore[call-overload]

    expected = reference_attention(batch, spec)
    assert (out.float().cpu() - expected).norm() < tolerance * expected.norm()


def test_norms_and_gates(device: torch.device) -> None:
    rows = torch.randn(65, 4096, device=device, dtype=torch.bfloat16)
    weight = torch.randn(4096, device=device, dtype=torch.bfloat16)
    out, total = torch.empty_like(rows), torch.randn_like(rows)
    expected = torch.nn.functional.rms_norm((total + rows).float(), (4096,), None, 1e-5) * weight.float()

    FusedRMSNorm(weight, 1e-5).after_add(total, rows, out)

    assert torch.allclose(out.float(), expected, rtol=2.0**-7, atol=2.0**-8)
    both = torch.randn(65, 2 * 14336, device=device, dtype=torch.bfloat16)
    expected = gate_in_place(both[:, :14336].float(), both[:, 14336:].float(), "silu")
    found = gate_fused(both[:, :14336], both[:, 14336:], "silu")
    assert torch.allclose(found.float(), expected, rtol=2.0**-7, atol=2.0**-8)


def in_bfloat16(weight: GroupWeight) -> torch.Tensor:
    """The weight that the kernel makes of its codes for bfloat16 rows, float32 [out, in]."""
    scales = weight.scales.bfloat16()
    offsets = (-weight.zeros.half().float() * scales.float()).bfloat16()
    parts = [part.float().repeat_interleave(weight.group_size, 1) for part in (scales, offsets)]
    return (weight.codes.float() * parts[0] + parts[1]).bfloat16().float()


@pytest.mark.parametrize("num_rows", [1, 5, 16, 100])
@pytest.mark.parametrize("shape", [(4096, 4096), (1024, 4096), (4096, 14336), (70, 96)])
def test_weight_only_products(device: torch.device, num_rows: int, shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    weight = torch.randn(shape, device=device)
    inputs = torch.randn(num_rows, shape[1], device=device, dtype=torch.bfloat16)
    groups, channels = quantize_groups(weight, 32), quantize_channels(weight)
    found = {
        "int4": (TritonInt4(groups, UnpackBuffer()).multiply(inputs)[0], in_bfloat16(groups)),
        "int8": (TritonBytes(channels, UnpackBuffer()).multiply(inputs)[0], channels.dequantize()),
    }
    for name, (result, read) in found.items():
        expected = inputs.float() @ read.t()
        assert (result - expected).norm() < 2e-3 * expected.norm(), name


def test_groups_of_a_published_size(device: torch.device) -> None:
    codes = torch.randint(0, 16, (512, 1024), dtype=torch.uint8, device=device)
    weight = GroupWeight(codes, torch.rand(512, 8, device=device), torch.full((512, 8), 8.0, device=device), 4)
    inputs = torch.randn(3, 1024, device=device, dtype=torch.float16)
    expected = inputs.float() @ as_read(weight).t()
    assert (TritonInt4(weight, UnpackBuffer()).multiply(inputs)[0] - expected).norm() < 2e-3 * expected.norm()


@pytest.mark.parametrize("num_rows", [1, 16, 200])
def test_fp8_products(device: torch.device, num_rows: int) -> None:
    torch.manual_seed(2)
    weight = quantize_outputs(torch.randn(1000, 4096, device=device))
    inputs = torch.randn(num_rows, 4096, device=device, dtype=torch.bfloat16)
    expected = inputs.float() @ weight.dequantize().t()
    usable = [kind for kind in FLOAT8 if kind.can_run(weight)]
    for kind in usable:
        values, scales = kind.build(weight, UnpackBuffer()).multiply(inputs)
        result = values.float() if scales is None else values.float() * scales
        assert (result - expected).norm() < 0.05 * expected.norm(), kind.name


@pytest.mark.parametrize("lengths", [[1], [1] * 33, [1, 200, 33, 1]], ids=["one", "decode", "mixed"])
def test_recurrent_states_advance_as_in_torch(device: torch.device, lengths: list[int]) -> None:
    torch.manual_seed(4)
    heads, key_dim, value_dim, num_rows, num_tokens = 32, 128, 128, len(lengths), sum(lengths)
    queries, keys = torch.randn(2, num_tokens, heads, key_dim)
    rates, decays = torch.rand(2, num_tokens, heads)
    values = torch.randn(num_tokens, heads, value_dim)
    inputs = DeltaInputs(queries, normalize_keys(keys), values, -decays, rates)
    states = torch.randn(3 * num_rows, heads, key_dim, value_dim)
    uses = [
        StateUse(row if row != 2 else None, num_rows + row, ((length // 2, 2 * num_rows + row),) if length > 1 else ())
        for row, length in enumerate(lengths)
    ]
    starts = [sum(lengths[:row]) for row in range(num_rows + 1)]
    expected, found = states.clone(), states.to(device)

    outputs = advance(expected, StepStates.of(uses, starts, 4, torch.device("cpu")), inputs)
    step = StepStates.of(uses, starts, 4, device)
    on_card = [part.to(device) for part in inputs]
    result = advance_states(found, step.reads, step.starts, step.cut_ends, step.cut_slots, on_card)

    assert (result.cpu() - outputs).norm() < 1e-4 * outputs.norm()
    assert (found.cpu() - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("num_tokens", [1, 64])
def test_adapters_products(device: torch.device, num_tokens: int) -> None:
    torch.manual_seed(5)
    rank, in_size, sizes, num_adapters = 16, 4096, (4096, 1024, 1024), 5
    weights = torch.randn(num_adapters, rank * (3 * in_size + sum(sizes)), device=device, dtype=torch.bfloat16)
    entries = [[16, 0, 48 * in_size], [16, 16, 48 * in_size + 16 * 4096], [16, 32, 48 * in_size + 16 * 5120]]
    table = torch.tensor([entries] * num_adapters, device=device)
    spans = torch.tensor([(0, 4096), (4096, 1024), (5120, 1024)], device=device)
    inputs = torch.randn(num_tokens, in_size, device=device, dtype=torch.bfloat16)
    adapters = torch.randint(-1, num_adapters, (num_tokens,), device=device, dtype=torch.int32)
    out = torch.zeros(num_tokens, sum(sizes), device=device, dtype=torch.bfloat16)
    expected = torch.zeros(num_tokens, sum(sizes), device=device, dtype=torch.float64)
    for token, adapter in enumerate(adapters.tolist()):
        if adapter < 0:
            continue
        down = weights[adapter, : 48 * in_size].view(48, in_size).double()
        low = down @ inputs[token].double()
        for module, (start, size) in enumerate(spans.tolist()):
            place = entries[module][2]
            up = weights[adapter, place : place + rank * size].view(rank, size).double()
            expected[token, start : start + size] = low[16 * module : 16 * module + 16] @ up

    add_token_products(out, inputs, adapters, weights, table, spans, max_rank=rank, max_size=4096)

    assert (out - expected).norm() <= 4e-3 * expected.norm()


def test_tokens_are_those_of_torch(device: torch.device) -> None:
    logits = torch.randn(64, 128256, device=device) * 2
    keys = [stream_key(seed, 100) for seed in range(64)]
    heats = [0.0, 0.5, 1.0, 1.5] * 16

    found, is_invalid = TritonChooser().choose(logits, keys, heats)

    assert torch.equal(found, TorchChooser().choose(logits, keys, heats)[0])
    assert not is_invalid.any()


def test_captured_steps_equal_eager_ones(device: torch.device, tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3"), tmp_path)
    backend = TritonPagedAttention(device=device, num_processors=132)
    model = load_model(folder, dtype=torch.float32, device=device, backend=backend)
    spec = model.attention_specs[0]
    caches = [backend.allocate(64, 16, spec, torch.float32) for spec in model.attention_specs]
    limits = BucketLimits(max_num_seqs=8, max_tokens=32, max_query_len=5, max_context_len=200)
    graphed = GraphedModel(
        model, caches, CudaGraphApi(device), limits, block_size=16, max_step_tokens=64, device=device
    )
    for rows in ([(20, 1), (33, 1), (90, 1)], [(21, 1), (34, 1), (91, 1), (5, 1)], [(22, 4), (35, 1)]):
        batch = make_batch(spec, rows, block_size=16, seed=3, is_scattered=False)
        token_ids = torch.arange(batch.context.query_starts[-1], device=device) + 7
        context = batch.context
        moved = type(context)(
            context.positions.to(device),
            context.slot_mapping.to(device),
            context.query_starts,
            context.context_lens,
            context.block_tables.to(device),
            16,
        )
        expected = model.forward(token_ids, moved, caches).clone()
        assert torch.allclose(graphed.forward(token_ids, moved, caches), expected, atol=1e-4)
    assert graphed.num_graphs == 2
