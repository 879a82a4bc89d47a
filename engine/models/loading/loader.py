"""Model loader for checkpoint folders."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import torch

from engine.attention.base import AttentionBackend, AttentionSpec
from engine.config import Quantization
from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ModelConfig
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.families.registry import read_model_config
from engine.models.layer_ops import LayerOps, layer_ops
from engine.models.layers import HeadGroupNorm, RMSNorm
from engine.models.linear import Linear
from engine.models.loading.expert_loader import ExpertLoader
from engine.models.loading.fused_experts import FusedExperts
from engine.models.mlp import MLP, DenseMLP
from engine.models.raw_weights import RawWeights
from engine.models.split import Split, Unsplit
from engine.quantization.choice import KernelTable
from engine.quantization.maker import LinearMaker
from engine.quantization.packed_tensors import discard_empty_bias, is_packed, take_packed
from engine.quantization.weights import PublishedWeight

logger = logging.getLogger(__name__)

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
_KV_SCALES = ("k_scale", "v_scale", "k_zero_point", "v_zero_point")


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
    retained: RawWeights | None = None,
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
        retained: Store for the weights before their layout changes, for other kernels.

    Raises:
        ModelConfigError: The config cannot be served.
        CheckpointError: The weights do not match the config.
        QuantizationError: The device does not support the quantization.
    """
    split = split or Unsplit()
    whole = read_model_config(model_dir)
    whole = replace(whole, rope=whole.rope.reaching(max_model_len))
    config, checkpoint = split.config(whole), split.checkpoint(model_dir, whole)
    maker = LinearMaker(quantization, kernels or KernelTable(time.perf_counter), retained)
    model = _Assembler(config, checkpoint, dtype, device, maker, ops or layer_ops(device), split).decoder(backend)
    checkpoint.check_all_taken()
    if config.is_multimodal:
        logger.info("%s: text only; %d tensors of other parts are ignored", model_dir, checkpoint.num_ignored)
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
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._device = device
        self._maker = maker
        self._ops = ops
        self._split = split
        fused = FusedExperts(checkpoint, maker, dtype, device)
        self._experts = ExpertLoader(config, checkpoint, self, fused, ops.gate)

    def decoder(self, backend: AttentionBackend) -> Decoder:
        config = self._config
        embedding = self.copy("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        if config.tie_word_embeddings:
            self._checkpoint.discard("lm_head.weight")
            head = embedding
        else:
            head = self.copy("lm_head.weight", config.vocab_size, config.hidden_size)
        return Decoder(
            config,
            embedding=embedding,
            layers=[self._layer(index) for index in range(config.num_layers)],
            norm=self._norm("model.norm.weight"),
            head=self._split.gathered(self._maker.head(self._split.head_rows(head)), config.vocab_size),
            backend=backend,
        )

    def _layer(self, index: int) -> DecoderLayer:
        config, traits, prefix = self._config, self._config.traits, f"model.layers.{index}"
        attended_size = config.num_heads * config.head_dim
        names = traits.norm_names or _NORMS[traits.norms]
        norms = [self._norm(f"{prefix}.{name}.weight") if name else None for name in names]
        return self._ops.layer(
            attention_norm=norms[0],
            qkv=self._qkv(f"{prefix}.self_attn"),
            qk_norm=self._qk_norm(f"{prefix}.self_attn"),
            output=self._split.summed(
                self.linear(
                    [f"{prefix}.self_attn.o_proj"], config.hidden_size, attended_size, has_bias=traits.output_bias
                )
            ),
            attended_norm=norms[1],
            mlp_norm=norms[2],
            mlp=self._split.summed_mlp(self._mlp(prefix, index)),
            mlp_output_norm=norms[3],
            branch_scale=traits.branch_scale,
            spec=self._attention_spec(f"{prefix}.self_attn", index),
        )

    def _attention_spec(self, prefix: str, index: int) -> AttentionSpec:
        config, traits = self._config, self._config.traits
        for kind in _KV_SCALES:
            # Scales for a pool of a published dtype; the pool here has the dtype of the setting.
            self._checkpoint.discard(f"{prefix}.{kind}")
        return AttentionSpec(
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=traits.attention_scale or config.head_dim**-0.5,
            sliding_window=traits.sliding_windows[index],
            softcap=traits.attention_softcap,
            sinks=self.copy(f"{prefix}.sinks", config.num_heads) if traits.has_sinks else None,
        )

    def _mlp(self, prefix: str, index: int) -> MLP:
        experts = self._config.traits.experts
        if experts is None or index not in experts.layers:
            return self._dense_mlp(f"{prefix}.mlp", self._config.intermediate_size)
        return self._experts.load(f"{prefix}.{experts.module}", experts)

    def _dense_mlp(self, prefix: str, size: int) -> DenseMLP:
        config, has_bias = self._config, self._config.traits.mlp_bias
        if config.traits.has_fused_gate_up:
            gate_up = self.linear([f"{prefix}.gate_up_proj"], 2 * size, config.hidden_size, has_bias=has_bias)
        else:
            names = [f"{prefix}.gate_proj", f"{prefix}.up_proj"]
            gate_up = self.linear(names, size, config.hidden_size, has_bias=has_bias)
        down = self.linear([f"{prefix}.down_proj"], config.hidden_size, size, has_bias=has_bias)
        return DenseMLP(gate_up, down, config.traits.activation, self._ops.gate)

    def _qkv(self, prefix: str) -> Linear:
        bias = self._fused_qkv(prefix, "bias", ()) if self._config.traits.qkv_bias else None
        parts = self._qkv_parts()
        if is_packed(self._checkpoint, f"{prefix}.{parts[0][0]}"):
            return self._published([self._packed_heads(prefix, *part) for part in parts], bias)
        return self._maker.dense(self._fused_qkv(prefix, "weight", (self._config.hidden_size,)), bias)

    def _qkv_parts(self) -> list[tuple[str, int, int]]:
        """Return name, heads and rotating heads of the checkpoint's tensors of queries, keys and values."""
        config = self._config
        num_heads, num_kv_heads = config.num_heads, config.num_kv_heads
        if config.traits.has_fused_qkv:
            return [("qkv_proj", num_heads + 2 * num_kv_heads, num_heads + num_kv_heads)]
        return [("q_proj", num_heads, num_heads), ("k_proj", num_kv_heads, num_kv_heads), ("v_proj", num_kv_heads, 0)]

    def _packed_heads(self, prefix: str, name: str, num_heads: int, num_rotated: int) -> PublishedWeight:
        config = self._config
        size = num_heads * config.head_dim
        part = self._packed(f"{prefix}.{name}", size, config.hidden_size, has_bias=config.traits.qkv_bias)
        rows = torch.arange(size).view(num_heads, config.head_dim)
        rows[:num_rotated] = self._rotation_order(rows[:num_rotated], 1)
        return part if num_rotated == 0 else part.rows(rows.flatten().to(self._device))

    def _published(self, parts: list[PublishedWeight], bias: torch.Tensor | None) -> Linear:
        published = self._config.published
        rounds_inputs = published is not None and published.rounds_inputs
        return self._maker.published(parts, bias, self._dtype, rounds_inputs=rounds_inputs)

    def _packed(self, prefix: str, out_size: int, in_size: int, *, has_bias: bool) -> PublishedWeight:
        """Take a projection of a quantized checkpoint."""
        published = self._config.published
        if published is None:
            raise CheckpointError(f"{prefix}: is quantized, but the config has no quantization_config with its format")
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
        fused = self._empty((config.num_heads + 2 * config.num_kv_heads) * config.head_dim, *row_shape)
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
        weight = self.copy(name, num_heads * config.head_dim).view(num_heads, config.head_dim)
        weight = self._rotation_order(weight, 1).flatten()
        offset = config.traits.norm_offset
        return self._split.norm_over_heads(weight, config.rms_norm_eps, offset, self._ops.norm)

    def _rotation_order(self, heads: torch.Tensor, axis: int) -> torch.Tensor:
        """Interleave the halves of each head along `axis`: 0 1 2 3 4 5 → 0 3 1 4 2 5.

        Numbers that rotate together become adjacent. Numbers that do not rotate stay at the end.
        """
        if self._config.traits.has_adjacent_pairs:
            return heads
        rotated = self._config.rope.rotated_size(self._config.head_dim)
        turning, still = heads.tensor_split([rotated], axis)
        halves = turning.tensor_split(2, axis)
        return torch.cat([torch.stack(halves, axis + 1).flatten(axis, axis + 1), still], axis)

    def linear(self, prefixes: list[str], out_size: int, in_size: int, *, has_bias: bool) -> Linear:
        """Return one projection, or several of the same input stacked into one."""
        bias = self._stacked(prefixes, "bias", out_size) if has_bias else None
        if is_packed(self._checkpoint, prefixes[0]):
            parts = [self._packed(prefix, out_size, in_size, has_bias=has_bias) for prefix in prefixes]
            return self._published(parts, bias)
        return self._maker.dense(self._stacked(prefixes, "weight", out_size, in_size), bias)

    def _stacked(self, prefixes: list[str], kind: str, *shape: int) -> torch.Tensor:
        """Return tensors of one shape stacked along the first axis."""
        parts = [self._checkpoint.take(f"{prefix}.{kind}", shape) for prefix in prefixes]
        stacked = self._empty(len(prefixes) * shape[0], *shape[1:])
        for index, part in enumerate(parts):
            stacked[index * shape[0] : (index + 1) * shape[0]].copy_(part)
        return stacked

    def _norm(self, name: str) -> RMSNorm:
        config = self._config
        return self._ops.norm(self.copy(name, config.hidden_size), config.rms_norm_eps, config.traits.norm_offset)

    def copy(self, name: str, *shape: int) -> torch.Tensor:
        """Return a copy of a tensor in the model's dtype on its device."""
        taken = self._checkpoint.take(name, shape)
        return self._empty(*shape).copy_(taken)

    def _empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)
