"""Shapes of the bundled models and their Hugging Face configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.training.tokenizer import MAX_CONTEXT, VOCAB_SIZE

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Widths and depth of a model; every width is a multiple of 32."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 32


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
    ),
    "small": Shape(
        hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2
    ),
    "large": Shape(
        hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4
    ),
}


def build(shape: Shape, eos_token_id: int, pad_token_id: int) -> "Qwen3ForCausalLM":
    """Return a randomly initialized Qwen3 model of the shape."""
    from dataclasses import asdict

    try:
        from transformers import Qwen3Config, Qwen3ForCausalLM
    except ImportError as error:
        raise ImportError("training and evaluation need transformers: pip install 'penstock[train]'") from error
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
    config = Qwen3Config(
        **asdict(shape),
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=MAX_CONTEXT,
        tie_word_embeddings=True,
        rope_parameters=rope,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        initializer_range=0.02,
        use_cache=True,
    )
    return Qwen3ForCausalLM(config)
