"""`python -m loadtests.engine.random_checkpoint --out DIR`: a checkpoint of a published shape with random weights.

For comparisons of speed, which depends on the shape and not on what the numbers mean. By default a Llama of 135 M
parameters: 30 layers, 576 wide, a vocabulary of 49k; with `--llama-8b` Llama 3's 8 B shape in bfloat16. Its tokenizer
knows every byte and every second pair of bytes. One file a layer takes the memory of one layer; numbers are made on the
GPU where there is one, for sixteen gigabytes of them take a CPU minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

_NUM_BYTES = 256
_SPREAD = 0.02
_END_OF_TEXT = "<|end|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Of a Llama."""

    num_layers: int = 30
    hidden_size: int = 576
    intermediate_size: int = 1536
    num_heads: int = 9
    num_kv_heads: int = 3
    vocab_size: int = 49152
    max_positions: int = 2048
    dtype: Literal["float32", "bfloat16"] = "float32"
    rope_theta: float = 10_000.0
    is_tied: bool = True

    def config(self) -> dict[str, object]:
        """As config.json states it."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_positions,
            "num_attention_heads": self.num_heads,
            "num_hidden_layers": self.num_layers,
            "num_key_value_heads": self.num_kv_heads,
            "rms_norm_eps": 1e-5,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.is_tied,
            "torch_dtype": self.dtype,
            "vocab_size": self.vocab_size,
            "bos_token_id": None,
            "eos_token_id": self.vocab_size - 1,
            "pad_token_id": None,
        }

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights."""
        kv_size = self.hidden_size // self.num_heads * self.num_kv_heads
        square, wide = (self.hidden_size, self.hidden_size), (self.intermediate_size, self.hidden_size)
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, self.hidden_size)}
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}"
            for name in ("input_layernorm", "post_attention_layernorm"):
                found[f"{prefix}.{name}.weight"] = (self.hidden_size,)
            for name, shape in (("q", square), ("k", (kv_size, self.hidden_size)), ("v", (kv_size, self.hidden_size))):
                found[f"{prefix}.self_attn.{name}_proj.weight"] = shape
            found[f"{prefix}.self_attn.o_proj.weight"] = square
            found[f"{prefix}.mlp.gate_proj.weight"] = found[f"{prefix}.mlp.up_proj.weight"] = wide
            found[f"{prefix}.mlp.down_proj.weight"] = wide[::-1]
        if not self.is_tied:
            found["lm_head.weight"] = (self.vocab_size, self.hidden_size)
        return found | {"model.norm.weight": (self.hidden_size,)}

    def shards(self) -> Iterator[dict[str, tuple[int, ...]]]:
        """Names and shapes, one layer after the other, then what stands outside of layers."""
        tensors = self.tensors()
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            yield {name: size for name, size in tensors.items() if name.startswith(prefix)}
        yield {name: size for name, size in tensors.items() if not name.startswith("model.layers.")}


LLAMA_8B = Shape(
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_heads=32,
    num_kv_heads=8,
    vocab_size=128256,
    max_positions=8192,
    dtype="bfloat16",
    rope_theta=500_000.0,
    is_tied=False,
)
_A_THOUSANDTH = replace(LLAMA_8B, hidden_size=128, intermediate_size=448, num_heads=8, num_kv_heads=2, vocab_size=2048)


def write_checkpoint(folder: Path, shape: Shape, seed: int) -> None:
    """Config, weights and tokenizer; equal for equal seeds on the same device. Raises OSError."""
    # Imported here: only this process needs torch, and it takes seconds.
    import torch
    from safetensors.torch import save_file

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, shape.dtype)
    generator = torch.Generator(device).manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shape.shards()):
        name = f"model-{number:05}.safetensors"
        weights = {
            key: torch.ones(size, dtype=dtype)
            if len(size) == 1
            else (torch.randn(size, generator=generator, device=device, dtype=dtype) * _SPREAD).cpu()
            for key, size in tensors.items()
        }
        save_file(weights, folder / name, {"format": "pt"})
        weight_map |= dict.fromkeys(weights, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(shape.config()))
    _write_tokenizer(folder, shape.vocab_size)


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    """A tokenizer of bytes and pairs of bytes. Raises OSError."""
    for name, content in (
        ("tokenizer", _tokenizer(vocab_size)),
        ("tokenizer_config", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": _END_OF_TEXT}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content))


def _tokenizer(vocab_size: int) -> dict[str, object]:
    letters = [_letter_of(byte) for byte in range(_NUM_BYTES)]
    pieces = letters + ["".join(pair) for pair in product(letters, letters)]
    vocab = {piece: number for number, piece in enumerate(pieces[: vocab_size - 1])}
    end = {"id": vocab_size - 1, "content": _END_OF_TEXT, "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    bytes_in, bytes_out = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}, {"type": "ByteLevel"}
    return {
        "version": "1.0",
        "added_tokens": [end | flags],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **bytes_in},
        "post_processor": None,
        "decoder": {**bytes_out, **bytes_in},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }


def _letter_of(byte: int) -> str:
    """The visible character that byte-level vocabularies write for a byte."""
    if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
        return chr(byte)
    hidden = [*range(33), *range(127, 161), 173]
    return chr(_NUM_BYTES + hidden.index(byte))


def main(argv: Sequence[str] | None = None) -> int:
    """Write one and report it."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.engine.random_checkpoint", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, help="default: as many as the shape has")
    parser.add_argument("--llama-8b", action="store_true", help="the shape of Llama 3 8 B")
    parser.add_argument("--small", action="store_true", help="with --llama-8b: a thousandth of it")
    options = parser.parse_args(argv)
    shape = Shape() if not options.llama_8b else _A_THOUSANDTH if options.small else LLAMA_8B
    write_checkpoint(options.out, replace(shape, num_layers=options.layers or shape.num_layers), options.seed)
    print(json.dumps({"written": str(options.out)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
