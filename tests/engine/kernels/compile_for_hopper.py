"""`python -m tests.engine.kernels.compile_for_hopper`: one variant of every kernel as machine code for sm_90, cardless.

The interpreter runs kernels that the compiler refuses; this finds those.
"""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.kernels import (
    choose_tokens,
    gated_delta_rule,
    paged_attention,
    rotate_and_store,
    token_adapters,
    weight_only,
)
from engine.models import fused_layers

_FLOATS = "*fp32"
_TARGET = GPUTarget("cuda", 90, 32)
_HEADS = {"NUM_HEADS": 32, "NUM_KV_HEADS": 8, "HEAD_DIM": 128}

_HEADS_OF_ANY_SIZE = {"NUM_HEADS": 32, "HEAD_DIM": 96, "HEAD_DIM_PADDED": 128, "NUM_SEGMENTS": 8}

KERNELS: list[tuple[Any, dict[str, str], dict[str, Any]]] = [
    (
        paged_attention.attend,
        {"key_ptr": "*i8", "value_ptr": "*i8", "sink_ptr": "*bf16"}
        | {"out_ptr": "*bf16", "query_ptr": "*bf16", "scale": "fp32"},
        _HEADS
        | {"HEAD_DIM_PADDED": 128, "BLOCK_SIZE": 16, "BLOCK_Q": 4, "BLOCK_M": 16, "TILE": 32, "WINDOW": 100}
        | {"SOFTCAP": 30.0, "NUM_SEGMENTS": 8, "IS_QUANTIZED": True, "HAS_SINKS": True},
    ),
    (
        paged_attention.reduce_segments,
        {"out_ptr": "*bf16"},
        _HEADS_OF_ANY_SIZE,
    ),
    (
        paged_attention.store_quantized,
        {"source_ptr": "*bf16", "target_ptr": "*fp8e4nv", "slots_ptr": "*i64"},
        {"MAX_CODE": 448.0, "IS_INTEGER": False, "NUM_KV_HEADS": 8, "HEAD_DIM": 128, "HEAD_DIM_PADDED": 128},
    ),
    (
        rotate_and_store.rotate_and_store,
        {"heads_ptr": "*bf16", "norm_weight_ptr": "*bf16", "key_ptr": "*fp8e4nv", "value_ptr": "*fp8e4nv"}
        | {"slots_ptr": "*i64", "eps": "fp32"},
        _HEADS | {"PAIRS_PADDED": 64, "HAS_NORM": True, "IS_QUANTIZED": True, "IS_INTEGER": False, "MAX_CODE": 448.0},
    ),
    (
        fused_layers.normalise,
        dict.fromkeys(("out_ptr", "input_ptr", "total_ptr", "weight_ptr"), "*bf16") | {"eps": "fp32"},
        {"SIZE": 4096, "SIZE_PADDED": 4096, "SUM": "before"},
    ),
    (
        fused_layers.gate,
        {"gate_ptr": "*bf16", "up_ptr": "*bf16"},
        {"SIZE": 14336, "BLOCK": 1024, "IS_SILU": False},
    ),
    (
        weight_only.multiply_int4,
        {"inputs_ptr": "*bf16", "packed_ptr": "*i32", "scales_ptr": "*i32"},
        {"GROUP_SIZE": 128, "SLICE": 32, "BLOCK_N": 128, "BLOCK_M": 16},
    ),
    (
        weight_only.multiply_bytes,
        {"inputs_ptr": "*bf16", "codes_ptr": "*fp8e4nv"},
        {"TILE_IN": 128, "BLOCK_N": 64, "BLOCK_M": 16},
    ),
    (weight_only.quantize_row, {"codes_ptr": "*fp8e4nv", "inputs_ptr": "*bf16"}, {"SIZE": 4096, "SIZE_PADDED": 4096}),
    (
        gated_delta_rule.walk_sequences,
        dict.fromkeys(("reads_ptr", "starts_ptr", "cut_ends_ptr", "cut_slots_ptr"), "*i64"),
        {"NUM_HEADS": 32, "KEY_DIM": 128, "VALUE_DIM": 128, "KEY_PADDED": 128, "COLUMNS": 16, "NUM_CUTS": 3},
    ),
    (
        token_adapters.multiply_down,
        {"inputs_ptr": "*bf16", "weights_ptr": "*bf16", "table_ptr": "*i64", "adapters_ptr": "*i32"},
        {"IN_SIZE": 4096, "MAX_RANK": 16, "NUM_MODULES": 3, "ROWS": 4, "BLOCK_IN": 512},
    ),
    (
        token_adapters.multiply_up,
        {"out_ptr": "*bf16", "weights_ptr": "*bf16"}
        | {"table_ptr": "*i64", "spans_ptr": "*i64", "adapters_ptr": "*i32"},
        {"MAX_RANK": 16, "RANK_PADDED": 16, "NUM_MODULES": 3, "BLOCK_OUT": 128},
    ),
    (choose_tokens.find_largest, {"ids_ptr": "*i32"}, {"BLOCK": 1024}),
    (
        choose_tokens.race,
        {"best_ids_ptr": "*i32", "keys_ptr": "*i64"},
        {"BLOCK": 1024, "BLOCKS_PADDED": 128},
    ),
    (
        choose_tokens.pick,
        {"token_ids_ptr": "*i64", "is_invalid_ptr": "*i8", "ids_ptr": "*i32", "best_ids_ptr": "*i32"},
        {"BLOCKS_PADDED": 32},
    ),
]
"""Kernel, the types of its arguments where they are not float32 pointers or int32, and its constants."""


def compile_all() -> int:
    """Compile every kernel; how many there are. Raises what the compiler raises."""
    for kernel, types, constants in KERNELS:
        signature = {name: _type_of(name, types, constants) for name in kernel.arg_names}
        triton.compile(ASTSource(fn=kernel, signature=signature, constexprs=constants), target=_TARGET)
    return len(KERNELS)


def _type_of(name: str, types: dict[str, str], constants: dict[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    if name in ("block_tables_ptr", "context_lens_ptr", "query_starts_ptr"):
        return "*i32"
    return types.get(name, _FLOATS if name.endswith("_ptr") else "i32")


if __name__ == "__main__":
    print(compile_all())
