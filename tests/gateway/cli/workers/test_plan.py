"""WorkersPlan: how many workers, and what each process is started with."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from gateway.cli.supervisor.launch import LaunchError
from gateway.cli.workers.plan import num_workers_of, plan_workers
from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig
from gateway.config.sources import config_of
from gateway.machine.process import MachineProcessSpec


def config(folder: Path, **values: object) -> GatewayConfig:
    return config_of(
        {
            "process.runtime_dir": folder,
            "public.listen": "127.0.0.1:0",
            "admin.listen": "127.0.0.1:0",
            **{key.replace("__", "."): value for key, value in values.items()},
        }
    )


@pytest.mark.parametrize(
    ("workers", "cores", "beside_engines", "expected"),
    [
        (None, 1, False, 1),
        (None, 2, False, 2),
        (None, 6, False, 6),
        (None, 64, False, 8),
        (None, 2, True, 1),
        (None, 3, True, 1),
        (None, 6, True, 4),
        (None, 64, True, 8),
        (3, 1, True, 3),
        (1, 64, False, 1),
    ],
)
def test_the_number_follows_the_cores_unless_it_is_set(
    workers: int | None, cores: int, beside_engines: bool, expected: int, tmp_path: Path
) -> None:
    found = config(tmp_path, **({} if workers is None else {"process__workers": workers}))
    assert num_workers_of(found, cores, beside_engines=beside_engines) == expected


@pytest.mark.parametrize(("mib", "expected"), [(256, 1), (768, 2), (1024, 3), (16_384, 6)])
def test_a_memory_limit_bounds_the_default(mib: int, expected: int, tmp_path: Path) -> None:
    assert num_workers_of(config(tmp_path), 6, memory_bytes=mib * 1024 * 1024) == expected
    assert num_workers_of(config(tmp_path, process__workers=5), 6, memory_bytes=mib * 1024 * 1024) == 5


def test_every_process_inherits_what_it_needs_and_has_the_settings(tmp_path: Path) -> None:
    with plan_workers(config(tmp_path), 3) as plan:
        children = (plan.control, *plan.workers)
        specs = [msgspec.json.decode(child.argv[-1], type=MachineProcessSpec) for child in children]
        assert [spec.column for spec in specs] == [0, 1, 2, 3]
        assert {spec.num_workers for spec in specs} == {3}
        for spec, child in zip(specs, children, strict=True):
            assert {spec.table, spec.own_pipe, *spec.pipes, spec.channel} <= set(child.descriptors)
            assert child.env is not None
            assert child.env["PENSTOCK_PUBLIC_LISTEN"] == plan.public.shown
            assert not child.is_piped
        assert plan.control.env is not None
        assert plan.control.env["PENSTOCK_ADMIN_LISTEN"] == plan.admin.inherited
        descriptors = specs[0].pipes
    for descriptor in descriptors:  # closed with the plan
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(LaunchError, match=address):
            plan_workers(config(tmp_path, public__listen=address), 2)


def test_a_folder_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"process\.runtime_dir"):
        plan_workers(config(tmp_path / ("x" * 100), policy__document=tmp_path / "policy.yaml"), 2)
