"""Average the weights of several checkpoints: `python -m engine.training.average --out DIR MODEL_DIR MODEL_DIR ...`.

Checkpoints of one training that ended on different mixes average to a model as good as the best one on each mix
(Wortsman et al., 2022).
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

_WEIGHTS = "model.safetensors"


def average(out: Path, folders: Sequence[Path]) -> None:
    """Write the mean to `out`, with configuration and tokenizer of the first folder.

    Raises:
        ValueError: The checkpoints differ in shape.
        OSError: A file cannot be read or written.
    """
    checkpoints = [load_file(folder / _WEIGHTS) for folder in folders]
    first = checkpoints[0]
    for folder, other in zip(folders, checkpoints, strict=True):
        if {name: value.shape for name, value in other.items()} != {name: value.shape for name, value in first.items()}:
            raise ValueError(f"{folder} is not of the same shape as {folders[0]}")
    shutil.copytree(folders[0], out, dirs_exist_ok=True)
    mean = {
        name: torch.stack([checkpoint[name].float() for checkpoint in checkpoints]).mean(0).to(value.dtype)
        for name, value in first.items()
    }
    save_file(mean, out / _WEIGHTS, metadata={"format": "pt"})


def main() -> None:
    """Average checkpoints from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the mean")
    parser.add_argument("folders", type=Path, nargs="+", metavar="MODEL_DIR")
    options = parser.parse_args()
    average(options.out, options.folders)


if __name__ == "__main__":
    main()
