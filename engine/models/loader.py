"""Builds a model from a checkpoint directory."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from engine.attention.base import AttentionBackend, AttentionSpec
from engine.config import Quantization
from engine.models.checkpoint import Checkpoint, CheckpointError
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder, DecoderLayer, Model
from engine.models.families import read_model_config
from engine.models.layers import RMSNorm
from engine.models.linear import Linear
from engine.quantization.choice import KernelTable
from engine.quantization.maker import LinearMaker
from engine.quantization.packed_tensors import discard_empty_bias, is_packed, take_packed
from engine.quantization.weights import GroupWeight


@torch.inference_mode()
def load_model(
    model_dir: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    backend: AttentionBackend,
    quantization: Quantization = "none",
    kernels: KernelTable | None = None,
) -> Model:
    """The model of a Hugging Face directory (config.json, safetensors), ready to run.

    Quantizes plain weights on the way when asked to; `kernels` chooses how they are multiplied by (None: by measuring).
    Raises ModelConfigError for a config that cannot be served, CheckpointError for weights that do not fit it and
    QuantizationError for a device that cannot do what is asked.
    """
    config = read_model_config(model_dir)
    checkpoint = Checkpoint(model_dir)
    maker = LinearMaker(quantization, kernels or KernelTable(time.perf_counter))
    model = _Assembler(config, checkpoint, dtype, device, maker).decoder(backend)
    checkpoint.check_all_taken()
    return model


class _Assembler:
    """Takes tensors from a checkpoint, fuses and lays them out as the layers want them.

    Fused weights are filled part by part, so that no second copy of the model is ever in memory.
    """

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        maker: LinearMaker,
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._device = device
        self._maker = maker

    def decoder(self, backend: AttentionBackend) -> Decoder:
        config = self._config
        embedding = self._copy("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        if config.tie_word_embeddings:
            self._checkpoint.discard("lm_head.weight")
            head = embedding
        else:
            head = self._copy("lm_head.weight", config.vocab_size, config.hidden_size)
        return Decoder(
            config,
            embedding=embedding,
            layers=[self._layer(index) for index in range(config.num_layers)],
            norm=self._norm("model.norm.weight"),
            head=self._maker.head(head),
            backend=backend,
        )

    def _layer(self, index: int) -> DecoderLayer:
        config, traits, prefix = self._config, self._config.traits, f"model.layers.{index}"
        attended_size = config.num_heads * config.head_dim
        return DecoderLayer(
            input_norm=self._norm(f"{prefix}.input_layernorm.weight"),
            qkv=self._qkv(f"{prefix}.self_attn"),
            qk_norm=self._qk_norm(f"{prefix}.self_attn") if traits.has_qk_norm else None,
            output=self._linear(
                [f"{prefix}.self_attn.o_proj"], config.hidden_size, attended_size, has_bias=traits.output_bias
            ),
            mlp_norm=self._norm(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self._linear(
                [f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj"],
                config.intermediate_size,
                config.hidden_size,
                has_bias=traits.mlp_bias,
            ),
            down=self._linear(
                [f"{prefix}.mlp.down_proj"], config.hidden_size, config.intermediate_size, has_bias=traits.mlp_bias
            ),
            spec=AttentionSpec(
                num_heads=config.num_heads,
                num_kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                scale=config.head_dim**-0.5,
                sliding_window=traits.sliding_windows[index],
            ),
        )

    def _qkv(self, prefix: str) -> Linear:
        bias = self._fused_qkv(prefix, "bias", ()) if self._config.traits.qkv_bias else None
        if is_packed(self._checkpoint, f"{prefix}.q_proj"):
            return self._maker.grouped(self._packed_qkv(prefix), bias, self._dtype)
        return self._maker.dense(self._fused_qkv(prefix, "weight", (self._config.hidden_size,)), bias)

    def _packed_qkv(self, prefix: str) -> list[GroupWeight]:
        config = self._config
        parts = []
        for name, num_heads in (("q", config.num_heads), ("k", config.num_kv_heads), ("v", config.num_kv_heads)):
            size = num_heads * config.head_dim
            part = self._packed(f"{prefix}.{name}_proj", size, config.hidden_size, has_bias=config.traits.qkv_bias)
            rows = torch.arange(size).view(num_heads, config.head_dim)
            parts.append(part if name == "v" else part.rows(_interleave_halves(rows, 1).flatten().to(self._device)))
        return parts

    def _packed(self, prefix: str, out_size: int, in_size: int, *, has_bias: bool) -> GroupWeight:
        """A projection of a checkpoint that comes quantized."""
        published = self._config.published
        if published is None:
            raise CheckpointError(f"{prefix}.qweight: the config has no quantization_config that says how it is packed")
        if not has_bias:
            discard_empty_bias(self._checkpoint, prefix)
        return take_packed(self._checkpoint, prefix, (out_size, in_size), published).to(self._device)

    def _fused_qkv(self, prefix: str, kind: str, row_shape: tuple[int, ...]) -> torch.Tensor:
        config = self._config
        fused = self._empty((config.num_heads + 2 * config.num_kv_heads) * config.head_dim, *row_shape)
        heads = fused.view(-1, config.head_dim, *row_shape)
        start = 0
        for name, num_heads in (("q", config.num_heads), ("k", config.num_kv_heads), ("v", config.num_kv_heads)):
            full_name = f"{prefix}.{name}_proj.{kind}"
            part = self._checkpoint.take(full_name, (num_heads * config.head_dim, *row_shape))
            part = part.view(num_heads, config.head_dim, *row_shape)
            heads[start : start + num_heads].copy_(part if name == "v" else _interleave_halves(part, 1))
            start += num_heads
        return fused

    def _qk_norm(self, prefix: str) -> RMSNorm:
        config = self._config
        weights = self._empty(config.num_heads + config.num_kv_heads, config.head_dim)
        for name, rows in (("q", weights[: config.num_heads]), ("k", weights[config.num_heads :])):
            weight = self._checkpoint.take(f"{prefix}.{name}_norm.weight", (config.head_dim,))
            rows.copy_(_interleave_halves(weight, 0))
        return RMSNorm(weights, config.rms_norm_eps)

    def _linear(self, prefixes: list[str], out_size: int, in_size: int, *, has_bias: bool) -> Linear:
        """One projection, or several over the same input stacked to one."""
        bias = self._stacked(prefixes, "bias", out_size) if has_bias else None
        if is_packed(self._checkpoint, prefixes[0]):
            parts = [self._packed(prefix, out_size, in_size, has_bias=has_bias) for prefix in prefixes]
            return self._maker.grouped(parts, bias, self._dtype)
        return self._maker.dense(self._stacked(prefixes, "weight", out_size, in_size), bias)

    def _stacked(self, prefixes: list[str], kind: str, *shape: int) -> torch.Tensor:
        """Tensors of one shape on top of each other."""
        stacked = self._empty(len(prefixes) * shape[0], *shape[1:])
        for index, prefix in enumerate(prefixes):
            part = stacked[index * shape[0] : (index + 1) * shape[0]]
            part.copy_(self._checkpoint.take(f"{prefix}.{kind}", shape))
        return stacked

    def _norm(self, name: str) -> RMSNorm:
        return RMSNorm(self._copy(name, self._config.hidden_size), self._config.rms_norm_eps)

    def _copy(self, name: str, *shape: int) -> torch.Tensor:
        return self._empty(*shape).copy_(self._checkpoint.take(name, shape))

    def _empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)


def _interleave_halves(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """0 1 2 3 4 5 → 0 3 1 4 2 5 along an axis: numbers that rotate together become neighbours."""
    halves = tensor.tensor_split(2, axis)
    return torch.stack(halves, axis + 1).flatten(axis, axis + 1)
