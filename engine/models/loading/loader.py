"""Model loader for checkpoint folders."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engine.attention.base import AttentionBackend, AttentionSpec
from engine.config import Quantization
from engine.huge_pages import release_free_memory
from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ModelConfig
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.embedding import TokenEmbedding
from engine.models.families.registry import read_model_config
from engine.models.layer_ops import LayerOps, layer_ops
from engine.models.layers import interleave_halves
from engine.models.linear import Linear
from engine.models.loading.calibration import CalibrationRun, calibration_tokens
from engine.models.loading.expert_loader import ExpertLoader
from engine.models.loading.fused_experts import FusedExperts
from engine.models.loading.norm_loader import NormLoader
from engine.models.loading.recurrent_loader import load_gated_delta_net
from engine.models.loading.single_thread import single_thread
from engine.models.loading.split import Split, Unsplit
from engine.models.mlp import MLP, DenseMLP
from engine.models.raw_weights import WeightPacker
from engine.models.recurrent_layer import RecurrentLayer
from engine.quantization.choice import KernelTable
from engine.quantization.maker import LinearMaker
from engine.quantization.packed_tensors import discard_empty_bias, is_packed, take_packed
from engine.quantization.weights import PublishedWeight

logger = logging.getLogger(__name__)

_KV_SCALES = (
    *("k_scale", "v_scale", "kv_scale", "q_scale", "k_zero_point", "v_zero_point"),
    *("k_proj.k_scale", "v_proj.v_scale"),
)


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
    """Load the model of a Hugging Face folder (config.json; safetensors or GGUF), ready to run.

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
    whole = replace(whole, rope=whole.rope.reaching(max_model_len)).quantized_as(quantization)
    config, checkpoint = split.config(whole), split.checkpoint(model_dir, whole)
    maker = LinearMaker(quantization, kernels or KernelTable(time.perf_counter), packer)
    takes_own_dtype = packer is not None
    assembler = _Assembler(
        config, checkpoint, dtype, device, maker, ops or layer_ops(device), split, takes_own_dtype=takes_own_dtype
    )
    # Parts of a model that several processes share wait for each other, and on a GPU no step is ready yet.
    if quantization == "int4" and device.type == "cpu" and isinstance(split, Unsplit):
        assembler.calibration_token_ids = calibration_tokens(model_dir, config.vocab_size)
    with single_thread(is_wanted=config.published is not None and device.type == "cpu"):
        model = assembler.decoder(backend)
    checkpoint.check_all_taken()
    if takes_own_dtype:
        checkpoint.drop_pages()
        release_free_memory()
    if maker.num_packed:
        forms = ", ".join(f"{count} {form}" for form, count in sorted(maker.num_packed.items()))
        logger.info("%s: quantized tensors of the model: %s", model_dir.name, forms)
    if maker.num_retained:
        retained = f"{maker.num_retained} of {maker.num_calibrated} projections stay in int8"
        logger.info("%s: %s, because their outputs would lose too much in int4", model_dir.name, retained)
    if config.is_multimodal or checkpoint.num_ignored:
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
        self._gates: dict[str, torch.Tensor] = {}
        self._packed_gates: dict[str, PublishedWeight] = {}
        self._norms = NormLoader(config, self, ops, split, self._rotation_order)
        fused = FusedExperts(checkpoint, maker, dtype, device, takes_own_dtype=takes_own_dtype)
        self._experts = ExpertLoader(config, checkpoint, self, fused, ops.gate)
        self.calibration_token_ids: list[int] = []
        """Text whose states the layers see before they are quantized; empty: none."""

    def decoder(self, backend: AttentionBackend) -> Decoder:
        embedding, head = self._vocabulary()
        return Decoder(
            self._config,
            embedding=embedding,
            layers=self._layers(embedding, backend),
            norm=self._norms.named("model.norm.weight"),
            head=self._split.gathered(head, self._config.vocab_size),
            backend=backend,
        )

    def _vocabulary(self) -> tuple[TokenEmbedding, Linear]:
        """Return the embedding and the vocabulary projection, whose weights may be the same."""
        config, name, head_name = self._config, "model.embed_tokens", "lm_head"
        if config.tie_word_embeddings:
            self._checkpoint.discard(f"{head_name}.weight")
            head_name = name
        head: Linear | None = None
        table: torch.Tensor | None = None
        if (
            self._takes_own_dtype
            and config.published is not None
            and self._checkpoint.has_blocks(f"{head_name}.weight")
        ):
            is_table = config.tie_word_embeddings
            table = self._mapped_table(f"{head_name}.weight") if is_table else None
            codes = self._packed(head_name, config.vocab_size, config.hidden_size, has_bias=False)
            head = self._published([codes], None)
            if is_table and table is None:
                table = codes.dequantize().to(self._dtype)
        if table is None:
            table = self._table(f"{name}.weight")
        if head is None:
            weight = table if config.tie_word_embeddings else self._table(f"{head_name}.weight")
            head = self._maker.head(self._split.head_rows(weight))
        return TokenEmbedding(table, self._dtype, config.traits.embedding_scale), head

    def _layers(self, embedding: TokenEmbedding, backend: AttentionBackend) -> list[DecoderLayer | RecurrentLayer]:
        indices = range(self._config.num_layers)
        if not self.calibration_token_ids or self._config.traits.recurrent is not None:
            return [self._layer(index) for index in indices]
        calibration = CalibrationRun(self._config, embedding, self.calibration_token_ids, backend)
        layers: list[DecoderLayer | RecurrentLayer] = []
        self._maker.is_calibrating = True
        for index in indices:
            layer = self._attention_layer(index)
            calibration.run(layer)
            self._maker.settle()
            layers.append(layer)
        self._maker.is_calibrating = False
        return layers

    def _layer(self, index: int) -> DecoderLayer | RecurrentLayer:
        recurrent = self._config.traits.recurrent
        if recurrent is None or index not in recurrent.layers:
            return self._attention_layer(index)
        prefix = f"model.layers.{index}"
        return RecurrentLayer(
            self._norms.named(f"{prefix}.input_layernorm.weight"),
            load_gated_delta_net(f"{prefix}.linear_attn", recurrent, self._config, self, self._ops),
            self._norms.named(f"{prefix}.post_attention_layernorm.weight"),
            self._mlp(prefix, index),
        )

    def _attention_layer(self, index: int) -> DecoderLayer:
        config, traits, prefix = self._config, self._config.traits, f"model.layers.{index}"
        attended_size = config.num_heads * config.head_dim
        norms = self._norms.of_layer(prefix)
        return self._ops.layer(
            attention_norm=norms[0],
            qkv=self._qkv(f"{prefix}.self_attn"),
            output_gate=self._output_gate(f"{prefix}.self_attn") if traits.has_output_gate else None,
            qk_norm=self._norms.of_heads(f"{prefix}.self_attn"),
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
        down = self.linear([f"{prefix}.down_proj"], config.hidden_size, size, has_bias=has_bias, is_sensitive=True)
        return DenseMLP(gate_up, down, config.traits.activation, self._ops.gate)

    def _qkv(self, prefix: str) -> Linear:
        config = self._config
        bias = self._fused_qkv(prefix, "bias", ()) if config.traits.qkv_bias else None
        parts = self._qkv_parts()
        if is_packed(self._checkpoint, [f"{prefix}.{name}" for name, _, _ in parts], config.published):
            return self._published([self._packed_heads(prefix, *part) for part in parts], bias)
        return self._maker.dense(self._fused_qkv(prefix, "weight", (config.hidden_size,)), bias)

    def _qkv_parts(self) -> list[tuple[str, int, int]]:
        """Return name, heads and rotating heads of the checkpoint's tensors of queries, keys and values."""
        config = self._config
        num_heads, num_kv_heads = config.num_heads, config.num_kv_heads
        if config.traits.has_fused_qkv:
            return [("qkv_proj", num_heads + 2 * num_kv_heads, num_heads + num_kv_heads)]
        return [("q_proj", num_heads, num_heads), ("k_proj", num_kv_heads, num_kv_heads), ("v_proj", num_kv_heads, 0)]

    def _packed_heads(self, prefix: str, name: str, num_heads: int, num_rotated: int) -> PublishedWeight:
        config, has_bias = self._config, self._config.traits.qkv_bias
        size = num_heads * config.head_dim
        if config.traits.has_output_gate and name == "q_proj":
            both = self._packed(f"{prefix}.{name}", 2 * size, config.hidden_size, has_bias=has_bias)
            # Behind each head's queries are those of its gate.
            rows, gates = torch.arange(2 * size).view(num_heads, 2, config.head_dim).unbind(1)
            self._packed_gates[prefix] = both.rows(gates.flatten().to(self._device))
            return both.rows(self._rotation_order(rows, 1).flatten().to(self._device))
        part = self._packed(f"{prefix}.{name}", size, config.hidden_size, has_bias=has_bias)
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
        parts = [self._take_heads(f"{prefix}.{name}.{kind}", num_heads, row_shape) for name, num_heads, _ in named]
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

    def _take_heads(self, name: str, num_heads: int, row_shape: tuple[int, ...]) -> torch.Tensor:
        """Take rows of heads; behind each head's queries may be those of its output gate, which are set aside."""
        head_dim = self._config.head_dim
        if not (self._config.traits.has_output_gate and ".q_proj." in name):
            return self._checkpoint.take(name, (num_heads * head_dim, *row_shape))
        taken = self._checkpoint.take(name, (2 * num_heads * head_dim, *row_shape))
        queries, gates = taken.view(num_heads, 2, head_dim, *row_shape).unbind(1)
        self._gates[name] = gates.flatten(0, 1)
        return queries.flatten(0, 1)

    def _output_gate(self, prefix: str) -> Linear:
        """Return the projection to the gate, whose rows came with the queries."""
        bias = self._gates.pop(f"{prefix}.q_proj.bias", None)
        moved_bias = None if bias is None else self._moved(bias)
        if packed := self._packed_gates.pop(prefix, None):
            return self._published([packed], moved_bias)
        return self._maker.dense(self._moved(self._gates.pop(f"{prefix}.q_proj.weight")), moved_bias)

    def _rotation_order(self, heads: torch.Tensor, axis: int) -> torch.Tensor:
        """Interleave the halves of each head along `axis`, so that numbers that rotate together become adjacent."""
        if self._config.traits.has_adjacent_pairs:
            return heads
        return interleave_halves(heads, axis, self._config.rope.rotated_size(self._config.head_dim))

    def linear(
        self, prefixes: list[str], out_size: int, in_size: int, *, has_bias: bool, is_sensitive: bool = False
    ) -> Linear:
        """Return one projection, or several of the same input stacked into one, which may be a sensitive one."""
        bias = self._stacked(prefixes, "bias", out_size) if has_bias else None
        if is_packed(self._checkpoint, prefixes, self._config.published):
            parts = [self._packed(prefix, out_size, in_size, has_bias=has_bias) for prefix in prefixes]
            return self._published(parts, bias)
        weight = self._stacked(prefixes, "weight", out_size, in_size)
        return self._maker.dense(weight, bias, is_sensitive=is_sensitive)

    def split(self, prefix: str, out_size: int, in_size: int, rows: Sequence[torch.Tensor]) -> list[Linear]:
        """Return several projections without bias, of which one tensor holds all; `rows` are the outputs of each."""
        if is_packed(self._checkpoint, [prefix], self._config.published):
            packed = self._packed(prefix, out_size, in_size, has_bias=False)
            return [self._published([packed.rows(part.to(self._device))], None) for part in rows]
        weight = self._checkpoint.take(f"{prefix}.weight", (out_size, in_size))
        dtype = self._dtype_of(weight, "weight")
        return [self._maker.dense(weight.index_select(0, part).to(self._device, dtype)) for part in rows]

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
        """Return the table [vocab, hidden]: mapped from the file where the model reads it in its own dtype.

        A table in quantized blocks is dequantized to the model's dtype.
        """
        shape = self._config.vocab_size, self._config.hidden_size
        if not self._takes_own_dtype:
            return self.copy(name, *shape)
        if not self._checkpoint.has_blocks(name):
            return self._checkpoint.take(name, shape)
        table = self._mapped_table(name)
        if table is None:
            return self.copy(name, *shape)
        self._checkpoint.discard(name)
        return table

    def _mapped_table(self, name: str) -> torch.Tensor | None:
        """Return a table in quantized blocks as numbers of the model's dtype in a mapped file; None: none can be."""
        return self._checkpoint.mapped(name, (self._config.vocab_size, self._config.hidden_size), self._dtype)

    def _dtype_of(self, part: torch.Tensor, kind: str) -> torch.dtype:
        """Return the dtype in which a projection's tensors of a kind are read; biases are added in the model's."""
        return part.dtype if self._takes_own_dtype and kind == "weight" else self._dtype

    def copy(self, name: str, *shape: int) -> torch.Tensor:
        """Return a copy of a tensor in the model's dtype on its device."""
        if not self._checkpoint.has_blocks(name):
            return self._moved(self._checkpoint.take(name, shape))
        self._checkpoint.require(name, shape)
        copied = self._empty(*shape)
        self._checkpoint.take_into(name, copied)
        return copied

    def _moved(self, taken: torch.Tensor) -> torch.Tensor:
        return self._empty(*taken.shape).copy_(taken)

    def _empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)
