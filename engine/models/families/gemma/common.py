"""Common traits of the Gemma generations: norms around both branches, scaled embeddings, local and global layers."""

from __future__ import annotations

from engine.models.config.config import ModelTraits
from engine.models.config.config_reader import ConfigReader
from engine.models.config.windows import read_alternating_windows

_DEFAULT_QUERY_SIZE = 256.0
_GLOBAL_THETA = 1_000_000.0
_LOCAL_THETA = 10_000.0


def read_gemma_traits(
    reader: ConfigReader,
    *,
    full_attention_every: int,
    attention_softcap: float | None = None,
    logit_softcap: float | None = None,
    has_qk_norm: bool = False,
    has_local_rope: bool = False,
) -> ModelTraits:
    """Read the traits of a Gemma config; the keyword arguments are the defaults of its generation.

    Raises:
        ModelConfigError: A setting is wrong or not supported.
    """
    if reader.boolean("use_bidirectional_attention", default=False):
        raise reader.error("use_bidirectional_attention", "attention to later tokens is not supported; expected false")
    has_bias = reader.boolean("attention_bias", default=False)
    return ModelTraits(
        qkv_bias=has_bias,
        output_bias=has_bias,
        qk_norm="each_head" if has_qk_norm else None,
        norms="around",
        norm_offset=1.0,
        activation="gelu_tanh",
        embedding_scale=reader.positive_integer("hidden_size") ** 0.5,
        attention_scale=reader.positive_number("query_pre_attn_scalar", default=_DEFAULT_QUERY_SIZE) ** -0.5,
        attention_softcap=_read_softcap(reader, "attn_logit_softcapping", attention_softcap),
        logit_softcap=_read_softcap(reader, "final_logit_softcapping", logit_softcap),
        is_tied_by_default=True,
        has_local_rope=has_local_rope,
        default_theta=_GLOBAL_THETA if has_local_rope else _LOCAL_THETA,
        default_local_theta=_LOCAL_THETA,
        sliding_windows=read_alternating_windows(reader, full_attention_every),
    )


def _read_softcap(reader: ConfigReader, key: str, default: float | None) -> float | None:
    """Read a cap: null turns it off, and an absent key means the default."""
    if reader.has(key):
        return reader.positive_number(key)
    return None if reader.is_null(key) else default
