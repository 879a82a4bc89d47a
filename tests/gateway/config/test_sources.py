"""Process settings: where they come from, and how a wrong one is named."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.config.addresses import is_loopback
from gateway.config.checks import ConfigError
from gateway.config.settings import bundled_policy_path
from gateway.config.sources import config_of, load_config, setting_types, variable_of, variables_of
from gateway.http.limits import BodyLimits, EdgeLimits


def write(folder: Path, text: str, name: str = "penstock.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def message_of(folder: Path, text: str = "", env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(write(folder, text), env or {}, cwd=folder)
    return str(caught.value)


def test_without_any_source_the_gateway_serves_this_machine_only(tmp_path: Path) -> None:
    config = load_config(None, {}, cwd=tmp_path)
    assert config.public.listen == "127.0.0.1:8080"
    assert config.admin.listen == "127.0.0.1:8081"
    assert config.policy.document == bundled_policy_path()
    assert config.policy.document.is_file()
    assert config.process.runtime_dir == tmp_path / "run"
    assert config.process.policy_variables == {"runtime_dir": str(tmp_path / "run")}
    assert config.process.drain_timeout_s == 30
    assert config.edge == EdgeLimits()


def test_settings_that_may_be_no_path_at_all_take_one_from_each_source(tmp_path: Path) -> None:
    write(
        tmp_path, 'policy.quality_dir = "models"\nstore = {ca_file = "/etc/ca.pem", address = "rediss://store:1/0"}\n'
    )
    config = load_config(None, {}, cwd=tmp_path)
    assert (config.policy.quality_dir, config.store.ca_file) == (tmp_path / "models", Path("/etc/ca.pem"))
    assert load_config(None, {"PENSTOCK_POLICY_QUALITY_DIR": "/m"}, cwd=tmp_path).policy.quality_dir == Path("/m")
    assert "policy.quality_dir: expected a path" in message_of(tmp_path, "policy.quality_dir = 3\n")


def test_later_sources_win_key_by_key(tmp_path: Path) -> None:
    text = """
        [process]
        drain_timeout_s = 1
        [telemetry]
        log.level = "debug"
        [edge.header]
        max_fields = 7
        max_uri_bytes = 99
    """
    write(tmp_path, text)
    env = {
        "PENSTOCK_PROCESS_DRAIN_TIMEOUT_S": "2",
        "PENSTOCK_EDGE_HEADER_MAX_URI_BYTES": "100",
        "PENSTOCK_PUBLIC_LISTEN": "[::1]:1",
    }
    config = load_config(None, env, {"process.drain_timeout_s": 3.0, "policy.document": None}, cwd=tmp_path)
    assert (config.process.drain_timeout_s, config.telemetry.log.level, config.public.listen) == (
        3.0,
        "debug",
        "[::1]:1",
    )
    assert (config.edge.header.max_fields, config.edge.header.max_uri_bytes) == (7, 100)


def test_the_file_can_be_named_by_a_variable_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    write(tmp_path / "etc", 'policy.document = "policy.yaml"\nprocess.runtime_dir = "/run/penstock"\n', "p.toml")
    config = load_config(None, {"PENSTOCK_CONFIG": "etc/p.toml"}, cwd=tmp_path)
    assert config.policy.document == tmp_path / "etc" / "policy.yaml"
    assert config.process.runtime_dir == Path("/run/penstock")


def test_paths_of_variables_and_flags_are_relative_to_the_working_directory(tmp_path: Path) -> None:
    config = load_config(None, {"PENSTOCK_POLICY_DOCUMENT": "a.yaml"}, {"process.runtime_dir": Path("r")}, cwd=tmp_path)
    assert (config.policy.document, config.process.runtime_dir) == (tmp_path / "a.yaml", tmp_path / "r")


def test_the_store_is_a_file_in_the_runtime_directory_by_default(tmp_path: Path) -> None:
    assert load_config(None, {}, cwd=tmp_path).store_address.path == tmp_path / "run" / "store.sqlite3"
    (tmp_path / "penstock.toml").write_text("store.address = 'embedded:shared/store'")
    assert load_config(None, {}, cwd=tmp_path).store_address.path == tmp_path / "shared" / "store"
    config = load_config(None, {"PENSTOCK_STORE_ADDRESS": "rediss://u:hunter2@cache/1"}, cwd=tmp_path)
    assert config.store_address.hosts == (("cache", 6379),)


def test_a_password_in_the_store_setting_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_config(None, {"PENSTOCK_STORE_ADDRESS": "redis://u:hunter2@cache/zero"}, cwd=tmp_path)
    assert "hunter2" not in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[polcy]\na = 1", "penstock.toml: polcy: no such setting; did you mean [policy]?"),
        (
            "[edge.body]\nmax_byte = 1",
            'edge.body.max_byte: no such setting; did you mean "edge.body.max_bytes", which is',
        ),
        ("a = 1", "penstock.toml: a: no such setting; known: admin, admin.oidc, cache, "),
        ("[admin]\na = 1", "penstock.toml: admin.a: no such setting; "),
        ("edge = 3", "penstock.toml: edge: expected a table, [edge], with any of connections.max_total, "),
        ("edge.body = 3", "penstock.toml: edge.body: expected a table, [edge.body], with any of timeout_s, grace_s, "),
        ("[process]\ndrain_timeout_s = '3'", "penstock.toml: process.drain_timeout_s: expected float, got '3'"),
        ("process.drain_timeout_s = true", "penstock.toml: process.drain_timeout_s: expected float, got True"),
        ("process.drain_timeout_s = -1", "penstock.toml: process.drain_timeout_s: expected 0 to 3600, got -1"),
        ("process.drain_timeout_s = nan", "penstock.toml: process.drain_timeout_s: expected 0 to 3600, got nan"),
        ("policy.poll_s = 0", "penstock.toml: policy.poll_s: expected 0.05 to 60, got 0"),
        ("cache.max_mb = 1000001", "penstock.toml: cache.max_mb: expected 1 to 1000000, got 1000001"),
        ("store.address = 'redis:host'", "penstock.toml: store.address: expected embedded:PATH, redis://host:port/0, "),
        ("store.address = 'redis+sentinel://host'", "store.address: redis+sentinel:// needs the service's name"),
        ("store.timeout_s = 0", "penstock.toml: store.timeout_s: expected 0.005 to 5, got 0"),
        ("telemetry.log.level = 'loud'", "log.level: expected one of debug, info, warning, error, got 'loud'"),
        ("policy.document = ''", "penstock.toml: policy.document: expected a path, got ''"),
        ("public.listen = '8080'", 'public.listen: expected host:port, [v6]:port or unix:/path, got "8080"'),
        ("public.listen = 'localhost:99999'", "public.listen: expected host:port"),
        ("public.listen = ':8080'", "public.listen: expected host:port"),
        ("public.listen = 'unix:'", "public.listen: unix: needs a path"),
        ("public.listen = '::1:8080'", 'public.listen: an IPv6 address goes in brackets: "[::1]:8080"'),
        ("public.listen = '127.0.0.1:8081'", "127.0.0.1:8081 is also public.listen; choose another port"),
        ("edge.header.max_bytes = 0", "penstock.toml: edge.header.max_bytes: expected a positive number, got 0"),
        ("a = [", "penstock.toml: not valid TOML: "),
        ("a = 1\na = 2", "not valid TOML: "),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_key(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in message_of(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("admin_listen", "admin.listen"),
        ("log_level", "telemetry.log.level"),
        ("oidc_issuer", "admin.oidc.issuer"),
        ("otlp_endpoint", "telemetry.trace.otlp_endpoint"),
        ("drain_timeout_s", "process.drain_timeout_s"),
        ("cache_max_mb", "cache.max_mb"),
        ("policy_source", "policy.source"),
        ("quality_dir", "policy.quality_dir"),
        ("store_ca_file", "store.ca_file"),
        ("recorder", "telemetry.recorder.mode"),
        ("edge.max_body_bytes", "edge.body.max_bytes"),
        ("edge.max_connections_per_ip", "edge.connections.max_per_ip"),
    ],
)
def test_a_key_at_the_wrong_place_is_named_with_the_right_one(tmp_path: Path, old: str, new: str) -> None:
    section, _, key = new.rpartition(".")
    assert f'{old}: no such setting; did you mean "{new}", which is {key} in [{section}]?' in message_of(
        tmp_path, f"{old} = 1"
    )
    name = f"PENSTOCK_{old.replace('.', '_').upper()}"
    if variable_of(old) != variable_of(new):
        assert f'{name}: no such setting; did you mean "{variable_of(new)}"?' in message_of(tmp_path, env={name: "1"})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PENSTOCK_PUBLC_LISTEN", "x", 'PUBLC_LISTEN: no such setting; did you mean "PENSTOCK_PUBLIC_LISTEN"?'),
        ("PENSTOCK_PROCESS_DRAIN_TIMEOUT_S", "soon", "PENSTOCK_PROCESS_DRAIN_TIMEOUT_S: expected float, got 'soon'"),
        ("PENSTOCK_EDGE_HEADER_MAX_URI_BYTES", "1.5", "PENSTOCK_EDGE_HEADER_MAX_URI_BYTES: expected int, got '1.5'"),
        ("PENSTOCK_EDGE_HEADER_MAX_URI_BYTES", "0", "EDGE_HEADER_MAX_URI_BYTES: expected a positive number, got 0"),
        ("PENSTOCK_PROCESS_DRAIN_TIMEOUT_S", "-1", "PENSTOCK_PROCESS_DRAIN_TIMEOUT_S: expected 0 to 3600, got -1"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, value: str, expected: str) -> None:
    assert expected in message_of(tmp_path, env={name: value})


@pytest.mark.parametrize(
    "name",
    ["PENSTOCK_SERVICE_HOST", "PENSTOCK_SERVICE_PORT_HTTP", "PENSTOCK_PORT", "PENSTOCK_PORT_8080_TCP_ADDR",
     "PENSTOCK_ADMIN_SERVICE_HOST", "PENSTOCK_ADMIN_PORT_8081_TCP"],
)  # fmt: skip
def test_what_kubernetes_sets_for_a_service_called_penstock_is_not_ours(tmp_path: Path, name: str) -> None:
    assert load_config(None, {name: "tcp://10.0.0.1:8080"}, cwd=tmp_path).public.listen == "127.0.0.1:8080"


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read \(No such file"):
        load_config(Path("none.toml"), {}, cwd=tmp_path)


def test_a_remote_admin_listener_can_be_allowed_by_a_variable(tmp_path: Path) -> None:
    variables = {"PENSTOCK_ADMIN_LISTEN": "0.0.0.0:9000", "PENSTOCK_ADMIN_ALLOW_REMOTE": "true"}
    assert load_config(None, variables, cwd=tmp_path).admin.allow_remote
    del variables["PENSTOCK_ADMIN_ALLOW_REMOTE"]
    with pytest.raises(ConfigError, match=r"^PENSTOCK_ADMIN_LISTEN: .*allow_remote = true in"):
        load_config(None, variables, cwd=tmp_path)


ODD: dict[str, Any] = {
    "process.runtime_dir": Path("/my folder/für=1"),
    "policy.document": Path("/a/b.yaml"),
    "public.listen": "[::1]:9",
    "public.shared": True,
    "cache.shared": False,
    "process.memory_limit_mb": 1000,
    "policy.quality_dir": Path("/q"),
    "store.address": "redis://user:p%40ss@host:1/2",
    "store.timeout_s": 0.123456789,
    "policy.source": "file",
    "telemetry.recorder.mode": "features",
    "telemetry.log.omit": "tenant, model",
    "process.zone": "12",
    "edge.body.max_bytes": 0,
    "edge.body.grace_s": 1e-3,
}


@pytest.mark.parametrize("changed", [{}, *({key: value} for key, value in ODD.items()), ODD])
def test_settings_travel_to_another_process_unchanged(tmp_path: Path, changed: dict[str, Any]) -> None:
    (tmp_path / "penstock.toml").write_text("process.drain_timeout_s = 7\n")  # not checked
    config = config_of(changed)
    assert load_config(None, variables_of(config), cwd=tmp_path) == config


def test_every_setting_has_a_variable_of_its_own() -> None:
    assert len({variable_of(key) for key in setting_types()}) == len(setting_types())


def test_values_by_path_make_the_settings_and_the_rest_have_their_defaults() -> None:
    config = config_of({"edge.body.max_bytes": 7, "telemetry.log.level": "error"})
    assert config.edge == EdgeLimits(body=BodyLimits(max_bytes=7))
    assert config.telemetry.log.level == "error"
    with pytest.raises(ConfigError, match=r'^edge.body.max: no such setting; did you mean "edge.body.max_bytes"'):
        config_of({"edge.body.max": 7})
    with pytest.raises(ConfigError, match=r"^telemetry.trace.sample_ratio: expected 0 to 1, got 2"):
        config_of({"telemetry.trace.sample_ratio": 2.0})


@pytest.mark.parametrize("name", ["x" * 100, "ü" * 50])
def test_a_runtime_folder_too_deep_for_the_engines_sockets_is_named_as_what_is_wrong(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"^--runtime-dir: .*the socket's path is \d+ bytes over the system's 107"):
        load_config(None, {}, {"process.runtime_dir": Path(name)}, cwd=tmp_path)
    # With a policy of one's own there may be no socket in it.
    load_config(None, {}, {"process.runtime_dir": Path(name), "policy.document": Path("p.yaml")}, cwd=tmp_path)


def test_a_socket_that_the_parent_holds_is_checked_like_any_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held, socket.create_server(("0.0.0.0", 0)) as exposed:
        assert is_loopback(f"fd:{held.fileno()}")
        assert not is_loopback(f"fd:{exposed.fileno()}")
    assert "expected fd:N with the number" in message_of(tmp_path, 'public.listen = "fd:x"')
    assert "is no socket that this process inherited" in message_of(tmp_path, 'public.listen = "fd:99999"')


def test_the_notice_before_a_drain_has_bounds(tmp_path: Path) -> None:
    assert load_config(None, {"PENSTOCK_PROCESS_DRAIN_NOTICE_S": "5"}, cwd=tmp_path).process.drain_notice_s == 5
    assert "drain_notice_s: expected 0 to 600, got -1" in message_of(tmp_path, "process.drain_notice_s = -1")


def test_every_setting_can_be_given_by_its_variable(tmp_path: Path) -> None:
    assert load_config(None, {"PENSTOCK_PUBLIC_SHARED": "true"}, cwd=tmp_path).public.shared


def test_a_working_directory_that_is_gone_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="the working directory is gone"):
        load_config(None, {})


def test_a_folder_too_long_for_the_engines_sockets_names_the_flag_that_changes_it(tmp_path: Path) -> None:
    folder = tmp_path / ("n" * 100)
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"^--runtime-dir: the engines' sockets are in .*; use a shorter directory"):
        load_config(None, {}, cwd=folder)
