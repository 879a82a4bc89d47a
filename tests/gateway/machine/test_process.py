"""MachineProcess: what a process is started with, and its part of the machine's bounds."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from gateway.limits.limit import StaticLimit
from gateway.machine.process import CONTROL, MachineProcess, MachineProcessSpec, num_columns_of, process_name_of
from gateway.machine.shared_counts import create_table


def process(column: int, num_workers: int, folder: Path) -> MachineProcess:
    table = create_table(num_columns_of(num_workers))
    reading, writing = os.pipe()
    spec = MachineProcessSpec(
        column=column,
        num_workers=num_workers,
        table=table,
        own_pipe=reading,
        pipes=(writing,),
        channel=socket.socket(socket.AF_UNIX).detach(),
    )
    return MachineProcess(msgspec.json.decode(msgspec.json.encode(spec), type=MachineProcessSpec), folder)


@pytest.mark.parametrize(
    ("value", "parts"),
    [(10_000, [2500] * 4), (10_000, [3334, 3333, 3333]), (10, [3, 3, 2, 2]), (11, [3, 3, 3, 2]), (7, [4, 3])],
)
def test_workers_have_even_parts_of_a_bound_that_add_up_to_it(value: int, parts: list[int], tmp_path: Path) -> None:
    workers = [process(column, len(parts), tmp_path) for column in range(1, len(parts) + 1)]
    assert [worker.part_of(value) for worker in workers] == parts
    assert sum(parts) == value
    for worker in workers:
        worker.handed.close()


@pytest.mark.parametrize(("value", "num_workers"), [(1, 8), (0, 2)])
def test_no_part_of_a_bound_is_empty(value: int, num_workers: int, tmp_path: Path) -> None:
    found = process(num_workers, num_workers, tmp_path)
    assert found.part_of(value) == 1
    found.handed.close()


@pytest.mark.parametrize(("num_bytes", "num_workers", "part"), [(10_000, 4, 2000), (10, 2, 3), (1, 8, 1)])
def test_the_control_process_has_a_part_of_the_memory_too(
    num_bytes: int, num_workers: int, part: int, tmp_path: Path
) -> None:
    found = process(1, num_workers, tmp_path)
    assert found.memory_part_of(num_bytes) == part
    found.handed.close()


def test_processes_know_each_other_by_their_sockets(tmp_path: Path) -> None:
    control, worker = process(CONTROL, 2, tmp_path), process(2, 2, tmp_path)
    assert (control.is_control, worker.is_control) == (True, False)
    assert (control.spec.name, worker.spec.name) == ("control", "worker-2")
    assert [process_name_of(column) for column in control.worker_columns] == ["worker-1", "worker-2"]
    assert worker.socket_of(CONTROL) == control.own_socket == tmp_path / "w0.sock"
    assert control.make_limiter("a", StaticLimit(3), lambda: 0.0).limit == 3
    for each in (control, worker):
        each.handed.close()
