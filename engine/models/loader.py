"""Builds a model from a checkpoint directory."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.attention.base import AttentionBackend, AttentionSpec
from engine.models.checkpoint import Checkpoint
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder, DecoderLayer, Model
from engine.models.families import read_model_config
from engine.models.layers import RMSNorm
from engine.models.linear import Linear, make_linear


@torch.inference_mode()
def load_model(model_dir: Path, *, dtype: torch.dtype, device: torch.device, backend: AttentionBackend) -> Model:
    """The model of a Hugging Face directory (config.json, safetensors), ready to run.

    Raises ModelConfigError for a config that cannot be served and CheckpointError for weights that do not fit it.
    """
    config = read_model_config(model_dir)
    checkpoint = Checkpoint(model_dir)
    model = _Assembler(config, checkpoint, dtype, device).decoder(backend)
    checkpoint.check_all_taken()
    return model


class _Assembler:
    """Takes tensors from a checkpoint, fuses and lays them out as the layers want them.

    Fused weights are filled part by part, so that no second copy of the model is ever in memory.
    """

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._device = device

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
            head=make_linear(head),
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
        weight = self._fused_qkv(prefix, "weight", (self._config.hidden_size,))
        bias = self._fused_qkv(prefix, "bias", ()) if self._config.traits.qkv_bias else None
        return make_linear(weight, bias)

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
        weight = self._empty(len(prefixes) * out_size, in_size)
        bias = self._empty(len(prefixes) * out_size) if has_bias else None
        for index, prefix in enumerate(prefixes):
            rows = slice(index * out_size, (index + 1) * out_size)
            weight[rows].copy_(self._checkpoint.take(f"{prefix}.weight", (out_size, in_size)))
            if bias is not None:
                bias[rows].copy_(self._checkpoint.take(f"{prefix}.bias", (out_size,)))
        return make_linear(weight, bias)

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
