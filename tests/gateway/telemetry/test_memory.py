"""Memory of the process and of its group."""

from __future__ import annotations

from pathlib import Path

from gateway.telemetry.memory import group_limit_bytes, resident_bytes


def test_the_process_knows_what_it_holds_and_its_group_what_it_may(tmp_path: Path) -> None:
    limit, none = tmp_path / "memory.max", tmp_path / "none"
    limit.write_text("1048576\n")
    none.write_text("max\n")

    assert (resident_bytes() or 0) > 1_000_000
    assert group_limit_bytes((none, limit)) == 1048576
    assert group_limit_bytes((none, tmp_path / "absent")) is None
