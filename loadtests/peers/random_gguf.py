"""`python -m loadtests.peers.random_gguf --like FILE --out FILE`: Llama 3.2's 1 B shape as a GGUF file, random weights.

For comparisons of speed, which depends on the shape and not on what the numbers mean. The tokenizer is that of another
GGUF file, so that every engine that reads GGUF can serve both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_NUM_LAYERS: Final = 16
_HIDDEN_SIZE: Final = 2048
_INTERMEDIATE_SIZE: Final = 8192
_NUM_HEADS: Final = 32
_NUM_KV_HEADS: Final = 8
_SPREAD: Final = 0.02
_TYPES: Final = ("F16", "Q8_0", "Q4_0")


def tensor_shapes(vocab_size: int, num_layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes of the weights; the output shares the embedding's."""
    kv_size = _HIDDEN_SIZE // _NUM_HEADS * _NUM_KV_HEADS
    yield "token_embd.weight", (vocab_size, _HIDDEN_SIZE)
    for layer in range(num_layers):
        prefix = f"blk.{layer}"
        yield f"{prefix}.attn_norm.weight", (_HIDDEN_SIZE,)
        yield f"{prefix}.ffn_norm.weight", (_HIDDEN_SIZE,)
        yield f"{prefix}.attn_q.weight", (_HIDDEN_SIZE, _HIDDEN_SIZE)
        yield f"{prefix}.attn_k.weight", (kv_size, _HIDDEN_SIZE)
        yield f"{prefix}.attn_v.weight", (kv_size, _HIDDEN_SIZE)
        yield f"{prefix}.attn_output.weight", (_HIDDEN_SIZE, _HIDDEN_SIZE)
        yield f"{prefix}.ffn_gate.weight", (_INTERMEDIATE_SIZE, _HIDDEN_SIZE)
        yield f"{prefix}.ffn_up.weight", (_INTERMEDIATE_SIZE, _HIDDEN_SIZE)
        yield f"{prefix}.ffn_down.weight", (_HIDDEN_SIZE, _INTERMEDIATE_SIZE)
    yield "output_norm.weight", (_HIDDEN_SIZE,)


def write_random_gguf(out: Path, like: Path, weight_type: str, *, num_layers: int, seed: int) -> None:
    """Write the file; vectors stay in float32."""
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

    tokenizer = {name: field for name, field in GGUFReader(like).fields.items() if name.startswith("tokenizer.")}
    vocab_size = len(tokenizer["tokenizer.ggml.tokens"].data)
    writer = GGUFWriter(out, "llama")
    writer.add_name("random-1b")
    writer.add_block_count(num_layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(_HIDDEN_SIZE)
    writer.add_feed_forward_length(_INTERMEDIATE_SIZE)
    writer.add_head_count(_NUM_HEADS)
    writer.add_head_count_kv(_NUM_KV_HEADS)
    writer.add_rope_dimension_count(_HIDDEN_SIZE // _NUM_HEADS)
    writer.add_rope_freq_base(500_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab_size)
    for name, field in tokenizer.items():
        writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    chosen = GGMLQuantizationType[weight_type]
    random = np.random.default_rng(seed)
    for name, shape in tensor_shapes(vocab_size, num_layers):
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
            continue
        weights: Any = random.standard_normal(shape, np.float32) * np.float32(_SPREAD)
        writer.add_tensor(name, quants.quantize(weights, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file and print its path."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.peers.random_gguf", description=__doc__)
    parser.add_argument("--like", type=Path, required=True, help="GGUF file whose tokenizer is taken")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--type", choices=_TYPES, default="Q8_0", help="of the weights (default %(default)s)")
    parser.add_argument("--layers", type=int, default=_NUM_LAYERS, help="of the model (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the weights (default %(default)s)")
    options = parser.parse_args(argv)
    write_random_gguf(options.out, options.like, options.type, num_layers=options.layers, seed=options.seed)
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
