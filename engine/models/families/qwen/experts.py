"""Experts of Qwen's sparse models."""

from __future__ import annotations

from engine.models.config.config import ExpertTraits
from engine.models.config.config_reader import ConfigReader


def read_qwen_experts(
    reader: ConfigReader, *, shared_size: int | None = None, is_normalized: bool = False
) -> ExpertTraits:
    """Read the number of experts, their choice and the layers that have them.

    Args:
        reader: Settings of the model.
        shared_size: Inner size of the expert that every token uses; None: no such expert.
        is_normalized: Default of `norm_topk_prob`.

    Raises:
        ModelConfigError: A setting is wrong or not supported.
    """
    if reader.boolean("use_sliding_window", default=False):
        raise reader.error("use_sliding_window", "sliding windows are not supported in this family; expected false")
    count_key = "num_experts" if reader.has("num_experts") else "num_local_experts"
    step = reader.positive_integer("decoder_sparse_step", default=1)
    dense = frozenset(reader.counts("mlp_only_layers"))
    num_layers = reader.num_layers()
    return ExpertTraits(
        module="mlp",
        projections=("gate_proj", "up_proj", "down_proj"),
        num_experts=reader.positive_integer(count_key),
        num_chosen=reader.positive_integer("num_experts_per_tok"),
        size=reader.positive_integer("moe_intermediate_size"),
        is_normalized=reader.boolean("norm_topk_prob", default=is_normalized),
        shared_size=shared_size,
        layers=frozenset(layer for layer in range(num_layers) if layer not in dense and (layer + 1) % step == 0),
    )
