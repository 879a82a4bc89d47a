"""What is started on which machine."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app.policy_acceptance import policy_checks
from gateway.cli.commands import CommandError, run_engine
from gateway.cli.supervisor.held_address import hold_address
from gateway.cli.supervisor.launch import (
    LaunchError,
    available_cores,
    bundled_model_dir,
    plan_launch,
    python_env,
    split_threads,
    with_resume_key,
)
from gateway.cli.supervisor.served_model import Role, ServedModel, bundled_pair
from gateway.config.settings import AdminSettings, GatewayConfig, PublicSettings, first_run_policy_path
from gateway.config.sources import config_of, load_config
from gateway.policies.policy_file import read_policy
from gateway.policies.reading import PolicyChecks
from gateway.upstreams.http1.target import Target
from routing_policies.policy.deployment import UP_RESUME_KEY, Deployment
from routing_policies.policy.document import Policy


def settings(folder: Path) -> GatewayConfig:
    return config_of({"process.runtime_dir": folder, "public.listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0"})


def values(argv: tuple[str, ...], flag: str) -> list[str]:
    """Every value given for a flag."""
    return [argv[index + 1] for index, part in enumerate(argv) if part == flag]


@pytest.mark.parametrize(
    ("num_cores", "large", "small"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 2, 1), (5, 2, 2), (8, 4, 3), (16, 10, 5), (64, 42, 21)],
)
def test_engines_never_have_more_threads_than_there_are_cores(num_cores: int, large: int, small: int) -> None:
    threads = split_threads(num_cores)
    assert (threads["large"], threads["small"]) == (large, small)
    assert sum(threads.values()) <= max(2, num_cores - 1)


@pytest.mark.parametrize(("quota", "expected"), [("max 100000", None), ("150000 100000", 2), ("50000 100000", 1)])
def test_a_containers_quota_bounds_the_cores(tmp_path: Path, quota: str, expected: int | None) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    unbounded = available_cores(tmp_path / "none")
    assert available_cores(tmp_path / "cpu.max") == min(unbounded, expected or unbounded)


def test_the_bundled_policy_starts_both_engines_on_the_sockets_it_names(tmp_path: Path) -> None:
    config = settings(tmp_path)
    policy = read_policy(config.policy.document, PolicyChecks(variables=config.process.policy_variables)).policy
    with plan_launch(config, policy, num_cores=8) as plan:
        pass
    assert [engine.child.name for engine in plan.engines] == ["small", "large"]
    for engine in plan.engines:
        argv = engine.child.argv
        assert values(argv, "--listen") == [f"unix:{engine.socket_path}"]
        assert values(argv, "--name") == [f"penstock-{engine.child.name}"]
        assert values(argv, "--threads") == [
            str(split_threads(8)["large" if engine.child.name == "large" else "small"])
        ]
        assert (Path(values(argv, "--model")[0]) / "config.json").is_file()
    # Drafts where the model has heads to state them.
    assert [values(engine.child.argv, "--speculation") for engine in plan.engines] == [[], ["auto"]]
    assert {f"unix:{engine.socket_path}" for engine in plan.engines} == {
        item.url for item in policy.deployments if not item.url.startswith("builtin:")
    }
    assert [engine.deployments for engine in plan.engines] == [("small",), ("large",)]


@pytest.mark.parametrize(
    "name",
    ["with space", "für 日本", "50% #1?&", 'it\'s "so"', "a:b", "a:", "two\nlines", "$(x)`y`;z", "${name}", "-x"],
)
def test_engines_start_whatever_the_runtime_folder_is_called(tmp_path: Path, name: str) -> None:
    config = settings(tmp_path / name)
    policy = read_policy(config.policy.document, policy_checks(config, {})).policy
    with plan_launch(config, policy, num_cores=2) as plan:
        assert [engine.deployments for engine in plan.engines] == [("small",), ("large",)]
        assert values(plan.engines[0].child.argv, "--listen") == [f"unix:{tmp_path}/{name}/small.sock"]
    assert Target.parse(policy.deployments[0].url).socket_path == f"{tmp_path}/{name}/small.sock"


def test_the_first_run_starts_the_real_model_beside_the_pair(tmp_path: Path) -> None:
    config = settings(tmp_path)
    policy = read_policy(first_run_policy_path(), PolicyChecks(variables=config.process.policy_variables)).policy
    with plan_launch(config, policy, num_cores=8) as plan:
        pass
    assert [engine.child.name for engine in plan.engines] == ["model", "small", "large"]
    assert values(plan.engines[0].child.argv, "--model") == ["smollm2-135m-instruct"]
    assert not any("--quantization" in engine.child.argv for engine in plan.engines), "4-bit weights stay as they are"
    assert [values(engine.child.argv, "--threads") for engine in plan.engines] == [["7"], ["1"], ["1"]]


def test_engines_and_gateway_share_a_key_that_no_description_shows(tmp_path: Path) -> None:
    config = settings(tmp_path)
    policy = read_policy(config.policy.document, PolicyChecks(variables=config.process.policy_variables)).policy
    keys = []
    for _ in range(2):
        with plan_launch(config, policy, num_cores=2) as plan:
            children = [*(engine.child for engine in plan.engines), plan.gateway]
            (key,) = {child.env[UP_RESUME_KEY] for child in children if child.env is not None}
            assert all(values(engine.child.argv, "--resume-key-env") == [UP_RESUME_KEY] for engine in plan.engines)
            assert key not in repr(plan)
            keys.append(key)
    assert keys[0] != keys[1]
    with plan_launch(config, policy, num_cores=2, resume_key="k" * 32) as plan:
        assert plan.gateway.env is not None
        assert plan.gateway.env[UP_RESUME_KEY] == "k" * 32
    assert with_resume_key({UP_RESUME_KEY: "mine"}) == {UP_RESUME_KEY: "mine"}
    assert len(with_resume_key({UP_RESUME_KEY: ""})[UP_RESUME_KEY]) == 64


def test_a_socket_without_a_model_is_an_error_with_the_flag_to_give(tmp_path: Path) -> None:
    config = settings(tmp_path)
    url = f"unix:{tmp_path}/model.sock"
    policy = Policy(schema_version=1, deployments=(Deployment(id="mine", url=url, model="m"),))
    with pytest.raises(LaunchError, match=r"deployment mine: no model is behind model\.sock; .* --model"):
        plan_launch(config, policy, bundled_pair(), num_cores=2)
    served: dict[Role, ServedModel] = {"model": ServedModel(source="/models/m", name="m", kv_memory_bytes=None)}
    with plan_launch(config, policy, served, num_cores=2) as plan:
        (argv,) = (engine.child.argv for engine in plan.engines)
    assert (values(argv, "--model"), values(argv, "--threads")) == (["/models/m"], ["2"])
    assert "--kv-memory-bytes" not in argv


def test_a_policy_that_names_other_servers_starts_no_engine(tmp_path: Path) -> None:
    policy = Policy(schema_version=1, deployments=(Deployment(id="a", url="http://a", model="m"),))
    with plan_launch(settings(tmp_path), policy, num_cores=2) as plan:
        assert plan.engines == ()


def test_the_gateway_inherits_the_sockets_that_listen_already_and_has_time_to_drain(tmp_path: Path) -> None:
    policy = Policy(schema_version=1, deployments=(Deployment(id="a", url="http://a", model="m"),))
    plan = plan_launch(settings(tmp_path), policy, num_cores=2)
    assert plan.gateway.env is not None
    theirs = load_config(None, plan.gateway.env, cwd=tmp_path / "elsewhere")
    public, admin = PublicSettings(listen=plan.public.inherited), AdminSettings(listen=plan.admin.inherited)
    assert theirs == replace(settings(tmp_path), public=public, admin=admin)
    assert plan.gateway.descriptors == (*plan.public.descriptors, *plan.admin.descriptors)
    assert not plan.public.shown.endswith(":0")
    assert plan.gateway.stop_timeout_s > settings(tmp_path).process.drain_timeout_s
    host, _, port = plan.public.shown.rpartition(":")
    socket.create_connection((host, int(port)), 1).close()
    plan.stop_listening()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 1)


def test_the_gateway_has_time_for_its_notice_and_its_drain(tmp_path: Path) -> None:
    policy = Policy(schema_version=1, deployments=(Deployment(id="a", url="http://a", model="m"),))
    config = settings(tmp_path)
    config = replace(config, process=replace(config.process, drain_notice_s=30.0, drain_timeout_s=5.0))
    with plan_launch(config, policy, num_cores=2) as plan:
        assert plan.gateway.stop_timeout_s > 35.0


def test_a_plan_that_cannot_have_its_second_address_lets_the_first_go(tmp_path: Path) -> None:
    policy = Policy(schema_version=1, deployments=(Deployment(id="a", url="http://a", model="m"),))
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        public, admin = (f"127.0.0.1:{each.getsockname()[1]}" for each in (free, taken))
        free.close()
        config = config_of({"process.runtime_dir": tmp_path, "public.listen": public, "admin.listen": admin})
        with pytest.raises(LaunchError, match=f"{admin} is already in use; .* choose --admin-port N"):
            plan_launch(config, policy, num_cores=2)
        hold_address(public, "--port").close()


@pytest.mark.parametrize("size", ["small", "large"])
def test_the_bundled_models_are_found_without_importing_the_engine(size: str) -> None:
    assert bundled_model_dir(size).name == f"penstock-{size}"  # type: ignore[arg-type]


def test_children_of_a_checkout_find_its_packages_from_any_directory() -> None:
    root = python_env()["PYTHONPATH"].split(":")[0]
    assert (Path(root) / "gateway" / "cli" / "supervisor" / "launch.py").is_file()


def test_without_its_packages_the_engine_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.supervisor.launch._ENGINE_PACKAGES", ("numpy", "no_such_package"))
    with pytest.raises(LaunchError, match=r"needs no_such_package; pip install 'penstock\[engine\]'"):
        bundled_model_dir("small")
    with pytest.raises(CommandError, match=r"pip install 'penstock\[engine\]'"):
        run_engine([])
