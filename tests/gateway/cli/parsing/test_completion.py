"""Completion in the shells themselves, of every command and flag of the parser."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.main import build_parser, main
from gateway.cli.parsing.command_tree import command_tree
from gateway.cli.parsing.completion import Shell, completion_script

SHELLS: list[Shell] = ["bash", "zsh", "fish"]
TREE = command_tree(build_parser())
_BASH = """\
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_penstock
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
_ZSH = """\
compdef() {{ }}
_describe() {{ local name=${{@[-1]}}; print -l ${{${{(P)name}}%%:*}} }}
_files() {{ print -l files "$@" }}
_message() {{ }}
compadd() {{ shift; print -l "$@" }}
compset() {{ }}
source {script}
words=({words}); CURRENT=$#words; PREFIX=$words[-1]
_penstock
"""
_FISH = "source {script}; complete -C {line}"

Complete = Callable[..., list[str]]


@pytest.fixture(params=SHELLS)
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """Complete the last of some words in a shell; it may be empty."""
    shell: Shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / f"penstock.{shell}"
    script.write_text(completion_script(TREE, shell))

    def run(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in ("penstock", *words))
        code = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell].format(
            script=script, words=quoted, line=f"'penstock {' '.join(words)}'"
        )
        flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
        done = subprocess.run([shell, *flags, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stderr) == (0, "")
        found = [line.partition("\t")[0].rstrip("/") for line in done.stdout.splitlines() if line]
        return sorted(one for one in found if one.startswith(words[-1])) if shell == "zsh" else sorted(found)

    return run


def test_commands_and_actions(complete: Complete) -> None:
    assert {"up", "policy", "top", "completion"} <= set(complete(""))
    assert complete("po") == ["policy"]
    assert complete("policy", "ro") == ["rollback"]
    assert complete("policy", "canary", "sta") == ["start", "status"]


def test_flags_of_the_command_that_was_typed(complete: Complete) -> None:
    assert complete("up", "--adm") == ["--admin-listen", "--admin-port"]
    assert complete("policy", "canary", "start", "x.yaml", "--per") == ["--percent"]
    assert complete("top", "--interval-s", "2", "--on") == ["--once"]


def test_values_where_they_are_a_list(complete: Complete) -> None:
    assert complete("up", "--log-level", "") == ["debug", "error", "info", "warning"]
    assert complete("admin", "create", "ann", "--role", "e") == ["editor"]
    assert complete("completion", "f") == ["fish"]


def test_nothing_is_offered_where_only_the_user_knows(complete: Complete) -> None:
    assert complete("up", "--port", "") == []


@pytest.mark.parametrize("words", [("up", "--policy", "my"), ("policy", "check", "my")])
def test_files_also_with_spaces(complete: Complete, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "my policy.yaml").touch()
    if (tmp_path / "penstock.zsh").exists():
        pytest.skip("the shell's own function completes files")
    assert complete(*words) == ["my policy.yaml"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_every_command_and_every_flag(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#")
    for command in TREE.walk():
        assert all(f" {word}" in script or f"'{word}" in script for word in command.words)
        for flag in command.flags:
            for name in flag.names:
                assert (f"-l {name[2:]}" if shell == "fish" and name.startswith("--") else name.lstrip("-")) in script
    assert "@" not in script.replace("[@]", "").replace("$@", "").replace("${@", "")


def test_a_tab_in_an_interactive_bash_completes_the_line(tmp_path: Path) -> None:
    script = tmp_path / "penstock.bash"
    script.write_text(completion_script(TREE, "bash"))
    child, terminal = pty.fork()
    if child == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    try:
        os.write(terminal, f"bind 'set bell-style none'; source {script}; echo REA''DY\n".encode())
        _read_until(terminal, "READY")
        os.write(terminal, b".venv/bin/penstock pol\t")
        _read_until(terminal, "penstock policy ")
        os.write(terminal, b"che\t")
        _read_until(terminal, "check ")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def _read_until(terminal: int, text: str) -> None:
    seen, deadline = "", time.monotonic() + 15.0
    while text not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 4096).decode(errors="replace")
