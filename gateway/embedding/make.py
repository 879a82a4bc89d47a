"""Command `python -m gateway.embedding.make FOLDER PRECISION [MODEL]`: build the graph in a process of its own.

The memory that the build takes is freed when the process ends.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from gateway.embedding.encoder import Precision
from gateway.embedding.graph_file import GraphFile
from gateway.embedding.model_files import EncoderUnavailable, ModelFiles, model_files

_REVISION = 2
"""Revision of the graphs from `gateway.embedding.graph`; raise it with every change there."""
_NICE = 10


def encoder_id(files: ModelFiles, precision: Precision) -> str:
    """Return the id that vectors of this model and precision are stored under."""
    return f"{files.name}-{precision}-r{_REVISION}"


def graph_file(folder: Path, files: ModelFiles, precision: Precision) -> GraphFile:
    """Return the file of the graph, which may not exist yet."""
    return GraphFile(folder, encoder_id(files, precision))


def main(argv: Sequence[str] | None = None) -> int:
    """Build the graph unless it exists; return 1 with the reason on standard error when that fails."""
    from gateway.embedding.graph import build_graph

    parser = argparse.ArgumentParser(prog="python -m gateway.embedding.make")
    parser.add_argument("folder", type=Path)
    parser.add_argument("precision", choices=get_args(Precision))
    parser.add_argument("model", nargs="?", default="")
    options = parser.parse_args(argv)
    try:
        files = model_files(options.model)
        graph_file(options.folder, files, options.precision).make(lambda: build_graph(files, options.precision))
    except (EncoderUnavailable, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.nice(_NICE)  # the gateway serves requests meanwhile
    sys.exit(main())
