"""`python -m loadtests.engine.gpu_checkpoint --out DIR`: a random bfloat16 checkpoint of Llama 3's 8 B shape.

Written layer by layer, so that it takes the memory of one layer, and made on the GPU where there is one: sixteen
gigabytes of random numbers take a CPU minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtests.engine.random_checkpoint import Shape, write_tokenizer

LLAMA_8B = Shape(
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_heads=32,
    num_kv_heads=8,
    vocab_size=128256,
    max_positions=8192,
)
_SPREAD = 0.02
_HEAD = "lm_head.weight"


def write_sharded(folder: Path, shape: Shape, seed: int) -> None:
    """Config, tokenizer and one file for each layer; equal for equal seeds on the same device. Raises OSError."""
    # Imported here: only this process needs torch, and it takes seconds.
    import torch
    from safetensors.torch import save_file

    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(_shards(shape)):
        name = f"model-{number:05}.safetensors"
        weights = {
            key: torch.ones(size, dtype=torch.bfloat16)
            if len(size) == 1
            else (torch.randn(size, generator=generator, device=device, dtype=torch.bfloat16) * _SPREAD).cpu()
            for key, size in tensors.items()
        }
        save_file(weights, folder / name, {"format": "pt"})
        weight_map |= dict.fromkeys(weights, name)
    config = shape.config() | {"tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_theta": 500000.0}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, shape.vocab_size)


def _shards(shape: Shape) -> Iterator[dict[str, tuple[int, ...]]]:
    """Names and shapes, one layer after the other, then what stands outside of layers."""
    tensors = shape.tensors() | {_HEAD: (shape.vocab_size, shape.hidden_size)}
    for layer in range(shape.num_layers):
        prefix = f"model.layers.{layer}."
        yield {name: size for name, size in tensors.items() if name.startswith(prefix)}
    yield {name: size for name, size in tensors.items() if not name.startswith("model.layers.")}


def main(argv: Sequence[str] | None = None) -> int:
    """Write one and say so."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.engine.gpu_checkpoint", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=LLAMA_8B.num_layers)
    parser.add_argument("--small", action="store_true", help="a thousandth of it, to try the bench without a GPU")
    options = parser.parse_args(argv)
    whole = {name: getattr(LLAMA_8B, name) for name in LLAMA_8B.__slots__}
    small = {"hidden_size": 128, "intermediate_size": 448, "num_heads": 8, "num_kv_heads": 2, "vocab_size": 2048}
    shape = Shape(**(whole | (small if options.small else {}) | {"num_layers": options.layers}))
    write_sharded(options.out, shape, options.seed)
    print(json.dumps({"written": str(options.out)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
