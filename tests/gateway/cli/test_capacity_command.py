"""`penstock capacity`: from files and from a running engine to a worksheet and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli import main as cli
from gateway.cli.capacity_command import engine_address

REQUESTED = [
    "--rps",
    "50",
    "--prompt-tokens",
    "800",
    "--output-tokens",
    "120",
    "--ttft-p95-ms",
    "2000",
    "--tpot-ms",
    "80",
]
LOAD = {
    "max_num_seqs": 64,
    "max_num_batched_tokens": 512,
    "num_blocks_total": 5000,
    "block_size": 16,
    "step_time": {
        "fixed_s": 0.01,
        "row_s": 0.0005,
        "prefill_token_s": 0.00005,
        "kv_token_s": 0.0,
        "pair_s": 0.0,
        "chunk_s": 0.0,
    },
}
STEPS = {
    "shapes": [
        {"num_seqs": 1, "context": 512, "overlapped_ms": 6.0},
        {"num_seqs": 32, "context": 512, "overlapped_ms": 9.0},
    ]
}


def test_a_stored_load_gives_worksheet_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "load.json"
    file.write_text(json.dumps(LOAD))
    assert cli.main(["capacity", "--load", str(file), *REQUESTED]) == 0
    out = capsys.readouterr().out
    for expected in ("replicas", "GPU hours a day", "time to first token, p95", "(target 2,000)"):
        assert expected in out
    assert cli.main(["capacity", "--load", str(file), *REQUESTED, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["replicas"] >= 1
    assert found["engine"]["kv_tokens"] == 80_000


def test_measured_steps_need_what_they_do_not_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "steps.txt"
    file.write_text("card  cpu\n" + json.dumps(STEPS))
    assert cli.main(["capacity", "--steps", str(file), *REQUESTED]) == 2
    assert "--prefill-token-us" in capsys.readouterr().err
    more = ["--prefill-token-us", "40", "--max-num-seqs", "64", "--step-tokens", "512", "--kv-tokens", "80000"]
    assert cli.main(["capacity", "--steps", str(file), *REQUESTED, *more]) == 0


def test_an_engine_on_a_cpu_counts_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "load.json"
    file.write_text(json.dumps({**LOAD, "device": "cpu", "num_threads": 3}))
    assert cli.main(["capacity", "--load", str(file), *REQUESTED, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert (plan["unit"], plan["units"]) == ("core", 3.0 * plan["replicas"])
    assert cli.main(["capacity", "--load", str(file), *REQUESTED, "--cores-per-replica", "2"]) == 0
    out = capsys.readouterr().out
    assert "core hours a day" in out
    assert "GPU" not in out
    assert cli.main(["capacity", "--load", str(file), *REQUESTED, "--gpus-per-replica", "2"]) == 0
    assert "GPU hours a day" in capsys.readouterr().out


def test_engines_are_known_from_the_runtime_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["capacity", *REQUESTED, "--runtime-dir", str(tmp_path)]
    assert cli.main(command) == 1
    assert f"no engine runs in {tmp_path}; start one with penstock up" in capsys.readouterr().err
    for name in ("small", "large", "admin"):
        (tmp_path / f"{name}.sock").touch()
    assert cli.main(command) == 2
    assert f"--engine: large and small run in {tmp_path}; name one" in capsys.readouterr().err
    assert cli.main([*command, "--engine", "medium"]) == 1
    assert "no engine 'medium' runs" in capsys.readouterr().err
    named = cli.build_parser().parse_args([*command, "--engine", "large"])
    assert engine_address(named) == f"unix:{tmp_path}/large.sock"


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--rps", "0"], "--rps"),
        (["--rps", "inf"], "--rps"),
        (["--ttft-p95-ms", "nan"], "--ttft-p95-ms"),
        (["--tpot-ms", "-5"], "--tpot-ms"),
        (["--gpus-per-replica", "-1"], "--gpus-per-replica"),
        (["--cores-per-replica", "0"], "--cores-per-replica"),
        (["--kv-bytes-per-token", "nan"], "--kv-bytes-per-token"),
        (["--headroom", "1"], "--headroom"),
        (["--tpot-ms", "1"], "tpot"),
    ],
)
def test_what_cannot_be_planned_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reported: str
) -> None:
    file = tmp_path / "load.json"
    file.write_text(json.dumps(LOAD))
    assert cli.main(["capacity", "--load", str(file), *REQUESTED, *arguments]) != 0
    assert reported in capsys.readouterr().err


def test_no_engine_and_no_json_are_errors_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["capacity", "--engine", "http://127.0.0.1:1", *REQUESTED]) == 1
    assert "no engine answers at http://127.0.0.1:1" in capsys.readouterr().err
    file = tmp_path / "load.json"
    file.write_text("not json")
    assert cli.main(["capacity", "--load", str(file), *REQUESTED]) == 1
    assert str(file) in capsys.readouterr().err
