"""The command line: what it offers, prints and returns."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from gateway.access.api_keys import KeyRing
from gateway.cli import main as cli
from gateway.cli.supervisor.runtime_lock import RuntimeLock
from routing_policies.loading import load_policy
from tests.gateway.cli.conftest import Exec

GOOD = """\
schema_version: 1
deployments: [{id: a, url: 'http://a', model: m}]
tests: [{name: t, expect: {route: implied-auto}}]
"""


pytestmark = pytest.mark.usefixtures("elsewhere")


def write(text: str, name: str = "policy.yaml") -> str:
    Path(name).write_text(text)
    return name


def test_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    listed = re.findall(r"^    ([a-z]+)  ", out, flags=re.MULTILINE)
    assert listed == [
        "up",
        "gateway",
        "engine",
        "models",
        "policy",
        "keys",
        "tenants",
        "admin",
        "audit",
        "doctor",
        "wait",
        "diagnose",
        "explain",
        "replay",
        "top",
        "capacity",
        "ray",
        "bench",
        "completion",
    ]
    assert "exit codes:  0 it worked" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["up"],
        ["gateway"],
        ["policy"],
        ["policy", "check"],
        ["policy", "show"],
        ["keys", "new"],
        ["doctor"],
        ["wait"],
        ["completion"],
    ],
)
def test_every_command_has_a_help_text(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--help"])
    assert ended.value.code == 0
    assert "usage: penstock " + " ".join(arguments) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["polcy"], "penstock: unknown command 'polcy'; did you mean policy?\npenstock --help lists what it takes\n"),
        (["serve"], "unknown command 'serve'; did you mean gateway?"),
        (["xyzzy"], "unknown command 'xyzzy'\n"),
        (["policy", "aply"], "penstock policy: unknown action 'aply'; did you mean apply?"),
        (["up", "--port", "99999"], "penstock up: --port: expected a port from 0 to 65535, got 99999"),
        (["up", "--port", "-1"], "--port"),
        (["up", "--prot", "1"], "penstock up: unknown flag --prot; did you mean --port?"),
        (["up", "--frob"], "unknown flag --frob\npenstock up --help lists what it takes"),
        (["up", "--log-level", "debgu"], "got 'debgu'; did you mean debug?"),
        (["up", "now"], "penstock up: unexpected argument 'now'"),
        (["keys", "new", "--tennant", "a"], "unknown flag --tennant; did you mean --tenant?"),
        (["--runtime-dir", "a", "top"], "unknown flag --runtime-dir; flags stand after the command"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["localhost:8080"], 2, "URL: expected one such as http://127.0.0.1:8080/readyz"),
        (["https://127.0.0.1:1/", "--tls-cert", "none.pem"], 2, "none.pem"),
        (["http://127.0.0.1:1/livez", "--timeout-s", "0"], 1, "after 0 s; the server's log has the reason"),
    ],
)
def test_a_wait_ends_with_the_url_and_the_cause(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["wait", *arguments]) == code
    assert text in capsys.readouterr().err


def test_no_command_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    reported = capsys.readouterr()
    assert reported.out.startswith("usage: penstock")
    assert reported.err == ""


@pytest.mark.parametrize("words", [["policy"], ["policy", "canary"], ["keys"]])
def test_a_group_without_an_action_lists_its_actions_as_an_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    assert f"usage: penstock {' '.join(words)}" in reported.err
    assert "actions:" in reported.err


@pytest.mark.parametrize(
    ("arguments", "expected"), [(["help", "top"], "usage: penstock top"), (["version"], "penstock ")]
)
def test_help_and_version_are_commands_too(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 0
    assert expected in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from gateway.cli.main import build_parser; build_parser().format_help();"
        "print([name for name in ('torch', 'uvicorn', 'httpx', 'yaml', 'msgspec', 'starlette') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("command", ["up", "gateway", "doctor", "policy show"])
def test_a_wrong_setting_is_one_line_and_exit_code_2(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("drain_timeout = 3\n", "penstock.toml")
    assert cli.main(command.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("penstock: ")
    assert 'drain_timeout: no such setting; did you mean "process.drain_timeout_s", which is' in err
    assert err.count("\n") == 1


# up and gateway


def test_up_checks_the_policy_before_it_starts_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--policy", write(GOOD + "rutes: []\n")]) == 2
    assert 'policy.yaml:4:1: rutes: unknown key; did you mean "routes"?' in capsys.readouterr().err
    assert not Path("run").exists()


def test_up_refuses_a_second_one_in_the_same_directory(capsys: pytest.CaptureFixture[str]) -> None:
    with RuntimeLock(Path("run").resolve()):
        assert cli.main(["up", "--policy", write(GOOD)]) == 1
    assert f"penstock already runs in {Path('run').resolve()} (pid {os.getpid()})" in capsys.readouterr().err


def test_up_without_keys_refuses_to_listen_to_other_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--policy", write(GOOD), "--public-listen", "0.0.0.0:0"]) == 2
    assert "is open to other machines and the policy has no tenant with a key" in capsys.readouterr().err


def test_a_runtime_directory_too_long_for_sockets_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--runtime-dir", "d" * 110]) == 2
    assert "over the system's 107; use a shorter directory" in capsys.readouterr().err


def test_a_port_for_a_unix_socket_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gateway", "--public-listen", "unix:/p.sock", "--port", "1"]) == 2
    assert "the listener is unix:/p.sock; use --public-listen host:port" in capsys.readouterr().err


# engine and bench


def test_engine_becomes_the_engine_with_every_argument_untouched(exec_calls: Exec) -> None:
    with pytest.raises(SystemExit):
        cli.main(["engine", "--model", "d", "--help"])
    assert exec_calls.argv[0] == sys.executable
    assert exec_calls.argv[-5:] == ["-m", "engine", "--model", "d", "--help"]


# policy


def test_check_of_a_good_policy_states_how_many_tests_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "check", write(GOOD)]) == 0
    assert capsys.readouterr().out == "policy.yaml: good, 1 test passed\n"


def test_check_without_a_file_checks_the_configured_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "check"]) == 0
    assert "bundled.yaml: good, 8 tests passed" in capsys.readouterr().out
    write(f"policy.document = '{write(GOOD)}'\n", "penstock.toml")
    assert cli.main(["policy", "check"]) == 0
    assert "policy.yaml: good, 1 test passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "rutes: []\n", 'policy.yaml:4:1: rutes: unknown key; did you mean "routes"?\n'),
        (
            GOOD.replace("implied-auto", "implied-direct"),
            'policy.yaml:3:35: tests[0].expect.route: test "t" failed: '
            "expected route implied-direct, got implied-auto\n",
        ),
    ],
)
def test_check_prints_what_is_wrong_with_its_line(text: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "check", write(text)]) == 1
    assert capsys.readouterr().out == expected


def test_check_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "check", "--format", "json", write(GOOD + "rutes: []\n")]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["file"]) == (False, "policy.yaml")
    assert report["problems"] == [
        {"line": 4, "column": 1, "path": "rutes", "message": 'unknown key; did you mean "routes"?'}
    ]


def test_a_policy_that_cannot_be_read_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "check", "none.yaml"]) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err


def test_a_policy_that_is_no_text_is_a_bad_policy_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("latin.yaml").write_bytes(GOOD.encode() + b"# caf\xe9\n")
    line = GOOD.count("\n") + 1
    assert cli.main(["policy", "check", "--format", "json", "latin.yaml"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["line"] == line
    assert cli.main(["policy", "show", "latin.yaml"]) == 1
    assert f"latin.yaml:{line}:6: not UTF-8" in capsys.readouterr().err


def test_show_fills_in_the_defaults_and_can_be_loaded_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "show", write(GOOD)]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out)["deployments"][0]["limits"] == {"max_in_flight": 64}
    assert load_policy(out, source="shown") == load_policy(GOOD, source="written")
    assert "# implied-auto: auto -> a (first_available)" in out


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Penstock policy"


# keys


def test_a_new_key_is_printed_once_with_lines_that_make_the_policy_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "new", "--tenant", "support", "--id", "first"]) == 0
    out = capsys.readouterr().out
    (key,) = re.findall(r"sk-penstock-[\w-]{43}", out)
    lines = out[out.index("  - id: ") :]
    assert sha256(key.encode()).hexdigest() in lines
    policy = load_policy(GOOD + "tenants:\n" + lines, source="p")
    assert policy.tenants[0].keys[0].id == "first"
    assert KeyRing(policy).authenticate([f"Bearer {key}".encode()], "10.0.0.1").tenant == "support"


def test_no_two_keys_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        cli.main(["keys", "new", "--tenant", "a"])
    assert len(set(re.findall(r"sk-penstock-[\w-]{43}", capsys.readouterr().out))) == 2


def test_a_key_for_a_tenant_that_cannot_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "new", "--tenant", "Big Co"]) == 2
    assert "--tenant: expected a-z" in capsys.readouterr().err


# output


def penstock(arguments: str, redirection: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell of its own, with its output redirected."""
    command = f"set -o pipefail; {sys.executable} -m gateway {arguments} {redirection}"
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, env=environment, check=False
    )


@pytest.mark.parametrize("arguments", ["", "policy schema", "completion bash"])
def test_a_reader_that_has_seen_enough_is_no_error_to_talk_about(arguments: str) -> None:
    assert penstock(arguments, "| true").stderr == ""


def test_a_full_disk_is_one_line() -> None:
    done = penstock("policy schema", "> /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "penstock: the output cannot be written (No space left on device)\n",
    )


def test_a_closed_output_is_no_failure() -> None:
    done = penstock("policy schema", ">&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_help_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert cli.main([]) == 0
    commands = capsys.readouterr().out.partition("commands:")[2].partition("begin with")[0]
    assert max(map(len, commands.splitlines())) <= 40
