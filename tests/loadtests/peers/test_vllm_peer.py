"""vLLM as a peer: how its program is started, and what is measured of a server's streams."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loadtests.peers.peers import cells
from tests.loadtests.bench import ROOT, bench

SMALL = "engine/bundled/models/penstock-small"
_PROGRAM = f"""#!{sys.executable}
# Takes the command line of `vllm serve` and serves the model with this project's engine.
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("action", choices=["serve"])
parser.add_argument("model")
for name in ("served-model-name", "host", "port", "max-model-len", "max-num-seqs", "dtype"):
    parser.add_argument("--" + name, required=True)
options = parser.parse_args()
assert os.environ["VLLM_CPU_OMP_THREADS_BIND"]
command = [sys.executable, "-m", "engine", "--model", options.model, "--name", options.served_model_name]
command += ["--listen", options.host + ":" + options.port, "--max-num-seqs", options.max_num_seqs]
os.chdir({str(ROOT)!r})
os.execv(sys.executable, command)
"""


@pytest.mark.e2e
def test_both_servers_are_measured_in_every_cell_as_their_clients_see_them(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    options = ("--streams", "1", "2", "--prompts", "32", "64", "--threads", "2", "--seconds", "5")
    record = bench("peers", "--model", SMALL, "--vllm", str(program), *options)
    for cell in cells(streams=[1, 2], prompts=[32, 64]):
        assert record[f"{cell.name}_vllm_http_tok_s"] > 0
        # The same engine on both sides: far apart would mean that the two are not measured alike.
        assert 0.2 < record[f"{cell.name}_vllm_http_ratio"] < 5
