"""Model loader for checkpoint folders."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch

from engine.attention.base import AttentionBackend, AttentionSpec
from engine.config import Quantization
from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ExpertTraits, ModelConfig
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.embedding import TokenEmbedding
from engine.models.experts import Expert, ExpertRouter, SharedExpert, SparseMLP
from engine.models.families.registry import read_model_config
from engine.models.layer_ops import LayerOps, layer_ops
from engine.models.layers import HeadGroupNorm, RMSNorm
from engine.models.linear import Linear
from engine.models.mlp import MLP, DenseMLP
from engine.models.raw_weights import WeightPacker
from engine.models.split import Split, Unsplit
from engine.quantization.choice import KernelTable
from engine.quantization.maker import LinearMaker
from engine.quantization.packed_tensors import discard_empty_bias, is_packed, take_packed
from engine.quantization.weights import GroupWeight

_NORMS = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "around": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
}
"""Checkpoint names of the norms before and after attention and before and after the MLP."""


@torch.inference_mode()
def load_model(
    model_dir: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    backend: AttentionBackend,
    quantization: Quantization = "none",
    kernels: KernelTable | None = None,
    ops: LayerOps | None = None,
    split: Split | None = None,
    max_model_len: int = 0,
    packer: WeightPacker | None = None,
) -> Decoder:
    """Load the model of a Hugging Face folder (config.json, safetensors), ready to run.

    Args:
        model_dir: Folder of the checkpoint.
        dtype: Dtype of the computation and of weights that stay unquantized.
        device: Device of the weights.
        backend: Attention of all layers.
        quantization: Quantization of dense weights during the load.
        kernels: Choice of quantized kernels; None: by measuring.
        ops: Layer operations; None: the default of the device.
        split: Part of the model for this process; None: all of it.
        max_model_len: Longest sequence, which selects one of two sets of rope frequencies; 0: the model's default.
        packer: Packer of the projections' weights for compiled steps; they are then read in the checkpoint's own dtype.

    Raises:
        ModelConfigError: The config cannot be served.
        CheckpointError: The weights do not match the config.
        QuantizationError: The device does not support the quantization.
    """
    split = split or Unsplit()
    whole = read_model_config(model_dir)
    whole = replace(whole, rope=whole.rope.reaching(max_model_len))
    config, checkpoint = split.config(whole), split.checkpoint(model_dir, whole)
    maker = LinearMaker(quantization, kernels or KernelTable(time.perf_counter), packer)
    takes_own_dtype = packer is not None
    assembler = _Assembler(
        config, checkpoint, dtype, device, maker, ops or layer_ops(device), split, takes_own_dtype=takes_own_dtype
    )
    model = assembler.decoder(backend)
    checkpoint.check_all_taken()
    if takes_own_dtype:
        checkpoint.drop_pages()
    return model


class _Assembler:
    """Assembler of a model: takes tensors from a checkpoint, fuses them and lays them out for the layers.

    Fused weights are filled part by part, so that memory never holds a second copy of the model. A tensor's shape is
    checked before any allocation, because the sizes in the config are unverified.
    """

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        maker: LinearMaker,
        ops: LayerOps,
        split: Split,
        *,
        takes_own_dtype: bool,
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._device = device
        self._maker = maker
        self._ops = ops
        self._split = split
        self._takes_own_dtype = takes_own_dtype

    def decoder(self, backend: AttentionBackend) -> Decoder:
        config = self._config
        table = self._table("model.embed_tokens.weight")
        if config.tie_word_embeddings:
            self._checkpoint.discard("lm_head.weight")
            head = table
        else:
            head = self._table("lm_head.weight")
        return Decoder(
            config,
            embedding=TokenEmbedding(table, self._dtype, config.traits.embedding_scale),
            layers=[self._layer(index) for index in range(config.num_layers)],
            norm=self._norm("model.norm.weight"),
            head=self._split.gathered(self._maker.head(self._split.head_rows(head)), config.vocab_size),
            backend=backend,
        )

    def _layer(self, index: int) -> DecoderLayer:
        config, traits, prefix = self._config, self._config.traits, f"model.layers.{index}"
        attended_size = config.num_heads * config.head_dim
        norms = [self._norm(f"{prefix}.{name}.weight") if name else None for name in _NORMS[traits.norms]]
        return self._ops.layer(
            attention_norm=norms[0],
            qkv=self._qkv(f"{prefix}.self_attn"),
            qk_norm=self._qk_norm(f"{prefix}.self_attn"),
            output=self._split.summed(
                self._linear(
                    [f"{prefix}.self_attn.o_proj"], config.hidden_size, attended_size, has_bias=traits.output_bias
                )
            ),
            attended_norm=norms[1],
            mlp_norm=norms[2],
            mlp=self._split.summed_mlp(self._mlp(prefix, index)),
            mlp_output_norm=norms[3],
            spec=AttentionSpec(
                num_heads=config.num_heads,
                num_kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                scale=traits.attention_scale or config.head_dim**-0.5,
                sliding_window=traits.sliding_windows[index],
                softcap=traits.attention_softcap,
            ),
        )

    def _mlp(self, prefix: str, index: int) -> MLP:
        experts = self._config.traits.experts
        if experts is None or index not in experts.layers:
            return self._dense_mlp(f"{prefix}.mlp", self._config.intermediate_size)
        return self._sparse_mlp(f"{prefix}.{experts.module}", experts)

    def _sparse_mlp(self, prefix: str, traits: ExpertTraits) -> SparseMLP:
        hidden_size = self._config.hidden_size
        if fused := self._checkpoint.first_with(f"{prefix}.experts.gate_up_proj"):
            raise CheckpointError(f"{fused}: one tensor for all experts is not read; expected tensors for each expert")
        router = self._copy(f"{prefix}.gate.weight", traits.num_experts, hidden_size)
        shared = None
        if traits.shared_size is not None:
            shared = SharedExpert(
                self._expert(f"{prefix}.shared_expert", traits.projections, traits.shared_size),
                self._copy(f"{prefix}.shared_expert_gate.weight", 1, hidden_size),
            )
        experts = [
            self._expert(f"{prefix}.experts.{index}", traits.projections, traits.size)
            for index in range(traits.num_experts)
        ]
        return SparseMLP(ExpertRouter(router, traits.num_chosen, traits.is_normalized), experts, shared)

    def _expert(self, prefix: str, projections: tuple[str, str, str], size: int) -> Expert:
        gate, up, down = (f"{prefix}.{name}" for name in projections)
        hidden_size = self._config.hidden_size
        return Expert(
            self._linear([gate, up], size, hidden_size, has_bias=False),
            self._linear([down], hidden_size, size, has_bias=False),
            self._config.traits.activation,
            self._ops.gate,
        )

    def _dense_mlp(self, prefix: str, size: int) -> DenseMLP:
        config, has_bias = self._config, self._config.traits.mlp_bias
        if config.traits.has_fused_projections:
            gate_up = self._linear([f"{prefix}.gate_up_proj"], 2 * size, config.hidden_size, has_bias=has_bias)
        else:
            names = [f"{prefix}.gate_proj", f"{prefix}.up_proj"]
            gate_up = self._linear(names, size, config.hidden_size, has_bias=has_bias)
        down = self._linear([f"{prefix}.down_proj"], config.hidden_size, size, has_bias=has_bias)
        return DenseMLP(gate_up, down, config.traits.activation, self._ops.gate)

    def _qkv(self, prefix: str) -> Linear:
        bias = self._fused_qkv(prefix, "bias", ()) if self._config.traits.qkv_bias else None
        parts = self._qkv_parts()
        if is_packed(self._checkpoint, f"{prefix}.{parts[0][0]}"):
            return self._maker.grouped([self._packed_heads(prefix, *part) for part in parts], bias, self._dtype)
        return self._maker.dense(self._fused_qkv(prefix, "weight", (self._config.hidden_size,)), bias)

    def _qkv_parts(self) -> list[tuple[str, int, int]]:
        """Return name, heads and rotating heads of the checkpoint's tensors of queries, keys and values."""
        config = self._config
        num_heads, num_kv_heads = config.num_heads, config.num_kv_heads
        if config.traits.has_fused_projections:
            return [("qkv_proj", num_heads + 2 * num_kv_heads, num_heads + num_kv_heads)]
        return [("q_proj", num_heads, num_heads), ("k_proj", num_kv_heads, num_kv_heads), ("v_proj", num_kv_heads, 0)]

    def _packed_heads(self, prefix: str, name: str, num_heads: int, num_rotated: int) -> GroupWeight:
        config = self._config
        size = num_heads * config.head_dim
        part = self._packed(f"{prefix}.{name}", size, config.hidden_size, has_bias=config.traits.qkv_bias)
        rows = torch.arange(size).view(num_heads, config.head_dim)
        rows[:num_rotated] = self._rotation_order(rows[:num_rotated], 1)
        return part if num_rotated == 0 else part.rows(rows.flatten().to(self._device))

    def _packed(self, prefix: str, out_size: int, in_size: int, *, has_bias: bool) -> GroupWeight:
        """Take a projection of a quantized checkpoint."""
        published = self._config.published
        if published is None:
            raise CheckpointError(f"{prefix}.qweight: the config has no quantization_config with its packing")
        if not has_bias:
            discard_empty_bias(self._checkpoint, prefix)
        return take_packed(self._checkpoint, prefix, (out_size, in_size), published).to(self._device)

    def _fused_qkv(self, prefix: str, kind: str, row_shape: tuple[int, ...]) -> torch.Tensor:
        config = self._config
        named = self._qkv_parts()
        parts = [
            self._checkpoint.take(f"{prefix}.{name}.{kind}", (num_heads * config.head_dim, *row_shape))
            for name, num_heads, _ in named
        ]
        dtype = self._dtype_of(parts[0], kind)
        num_rows = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        fused = torch.empty(num_rows, *row_shape, dtype=dtype, device=self._device)
        heads = fused.view(-1, config.head_dim, *row_shape)
        start = 0
        for (_, num_heads, num_rotated), taken in zip(named, parts, strict=True):
            part = taken.view(num_heads, config.head_dim, *row_shape)
            heads[start : start + num_rotated].copy_(self._rotation_order(part[:num_rotated], 1))
            heads[start + num_rotated : start + num_heads].copy_(part[num_rotated:])
            start += num_heads
        return fused

    def _qk_norm(self, prefix: str) -> RMSNorm | HeadGroupNorm | None:
        config = self._config
        if config.traits.qk_norm is None:
            return None
        if config.traits.qk_norm == "all_heads":
            queries = self._head_group_norm(f"{prefix}.q_norm.weight", config.num_heads)
            keys = self._head_group_norm(f"{prefix}.k_norm.weight", config.num_kv_heads)
            return HeadGroupNorm(queries, keys, config.num_heads)
        taken = [self._checkpoint.take(f"{prefix}.{name}_norm.weight", (config.head_dim,)) for name in ("q", "k")]
        weights = self._empty(config.num_heads + config.num_kv_heads, config.head_dim)
        for weight, rows in zip(taken, (weights[: config.num_heads], weights[config.num_heads :]), strict=True):
            rows.copy_(self._rotation_order(weight, 0))
        return self._ops.norm(weights, config.rms_norm_eps, config.traits.norm_offset)

    def _head_group_norm(self, name: str, num_heads: int) -> RMSNorm:
        config = self._config
        weight = self._copy(name, num_heads * config.head_dim).view(num_heads, config.head_dim)
        weight = self._rotation_order(weight, 1).flatten()
        offset = config.traits.norm_offset
        return self._split.norm_over_heads(weight, config.rms_norm_eps, offset, self._ops.norm)

    def _rotation_order(self, heads: torch.Tensor, axis: int) -> torch.Tensor:
        """Interleave the halves of each head along `axis`: 0 1 2 3 4 5 → 0 3 1 4 2 5.

        Numbers that rotate together become adjacent. Numbers that do not rotate stay at the end.
        """
        rotated = self._config.rope.rotated_size(self._config.head_dim)
        turning, still = heads.tensor_split([rotated], axis)
        halves = turning.tensor_split(2, axis)
        return torch.cat([torch.stack(halves, axis + 1).flatten(axis, axis + 1), still], axis)

    def _linear(self, prefixes: list[str], out_size: int, in_size: int, *, has_bias: bool) -> Linear:
        """Return one projection, or several of the same input stacked into one."""
        bias = self._stacked(prefixes, "bias", out_size) if has_bias else None
        if is_packed(self._checkpoint, prefixes[0]):
            parts = [self._packed(prefix, out_size, in_size, has_bias=has_bias) for prefix in prefixes]
            return self._maker.grouped(parts, bias, self._dtype)
        return self._maker.dense(self._stacked(prefixes, "weight", out_size, in_size), bias)

    def _stacked(self, prefixes: list[str], kind: str, *shape: int) -> torch.Tensor:
        """Return tensors of one shape stacked along the first axis."""
        parts = [self._checkpoint.take(f"{prefix}.{kind}", shape) for prefix in prefixes]
        dtype = self._dtype_of(parts[0], kind)
        if len(parts) == 1 and self._takes_own_dtype and dtype == parts[0].dtype:
            return parts[0]  # mapped from the file; what packs it only reads
        stacked = torch.empty(len(prefixes) * shape[0], *shape[1:], dtype=dtype, device=self._device)
        for index, part in enumerate(parts):
            stacked[index * shape[0] : (index + 1) * shape[0]].copy_(part)
        return stacked

    def _table(self, name: str) -> torch.Tensor:
        """Return the table [vocab, hidden]: mapped from the file where the model reads it in its own dtype."""
        shape = self._config.vocab_size, self._config.hidden_size
        return self._checkpoint.take(name, shape) if self._takes_own_dtype else self._copy(name, *shape)

    def _dtype_of(self, part: torch.Tensor, kind: str) -> torch.dtype:
        """Return the dtype in which a projection's tensors of a kind are read; biases are added in the model's."""
        return part.dtype if self._takes_own_dtype and kind == "weight" else self._dtype

    def _norm(self, name: str) -> RMSNorm:
        config = self._config
        return self._ops.norm(self._copy(name, config.hidden_size), config.rms_norm_eps, config.traits.norm_offset)

    def _copy(self, name: str, *shape: int) -> torch.Tensor:
        taken = self._checkpoint.take(name, shape)
        return self._empty(*shape).copy_(taken)

    def _empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)
