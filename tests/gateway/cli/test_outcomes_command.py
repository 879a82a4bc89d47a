"""The command against a server on this machine: estimate, outcomes, a second run, and training from them."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from gateway.cli.main import main
from gateway.cli.outcomes.answer_check import require_answers
from gateway.cli.outcomes.prompt_file import read_prompts


class _Models(BaseHTTPRequestHandler):
    """Server of two models: one echoes short prompts, the other one every prompt."""

    keys: ClassVar[dict[str, str]] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.keys[body["model"]] = self.headers.get("authorization", "")
        text = body["messages"][-1]["content"]
        text = "nothing" if body["model"] == "s" and len(text) > 20 else text
        message = {"role": "assistant", "content": text}
        content = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Models)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("shown_in", ["help", "docs"])
def test_the_examples_have_prompts_that_their_check_can_use(
    shown_in: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["policy", "outcomes", "--help"])
    shown = capsys.readouterr().out
    if shown_in == "docs":
        shown = (Path(__file__).parents[3] / "docs" / "routing.md").read_text()
    lines = [line.strip() for line in shown.splitlines() if line.lstrip().startswith(('{"prompt"', '{"messages"'))]
    (check,) = re.findall(r"^(?:penstock policy outcomes|    --large) .*--check (\w+)", shown, re.MULTILINE)
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(lines))
    prompts = read_prompts(file)
    assert len(prompts) == 2
    require_answers(check, prompts)


def _prompts(path: Path, num: int) -> Path:
    words = ["Say", "Please, after a long while, say"]
    lines = [
        {"prompt": f"{words[number % 2]} {number}", "answer": str(number), "category": f"k{number % 2}"}
        for number in range(num)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_outcomes_of_two_servers_train_a_predictor(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = _prompts(tmp_path / "prompts.jsonl", 210), tmp_path / "out.jsonl"
    command = ["policy", "outcomes", "--prompts", str(prompts), "--small", f"{url}#s", "--large", f"{url}#l"]
    command += ["--check", "number", "--out", str(out), "--yes", "--json", "--runtime-dir", str(tmp_path)]
    assert main([*command, "--limit", "10"]) == 0
    assert main(command) == 0
    shown = capsys.readouterr()
    first, second = (json.loads(line) for line in shown.out.splitlines())
    assert (first["num_outcomes"], second["num_outcomes"], second["has_logprobs"]) == (10, 210, False)
    assert "200 prompts to compare, 10 have outcomes already; at most:" in shown.err
    assert "cost unknown (--small-prices)" in shown.err
    assert "teach a cascade which prompts to skip" in shown.err
    train = ["policy", "train", "--data", str(out), "--weak", "s", "--strong", "l", "--out", str(tmp_path / "p.json")]
    assert main(train) == 0
    assert "log probabilities" in capsys.readouterr().out


def test_a_finished_file_is_reported_as_it_is(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts, out = _prompts(tmp_path / "prompts.jsonl", 1), tmp_path / "out file.jsonl"
    line = {"messages": [{"role": "user", "content": "Say 0"}], "outcomes": {"s": 1, "l": 1}, "logprobs": {"s": [-1]}}
    out.write_text(json.dumps(line, separators=(",", ":")) + "\n")
    command = ["policy", "outcomes", "--prompts", str(prompts), "--small", f"{url}#s", "--large", f"{url}#l"]
    command += ["--check", "number", "--out", str(out), "--runtime-dir", str(tmp_path)]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["has_logprobs"] is True
    assert main(command) == 0
    shown = capsys.readouterr()
    assert f"train --data '{out}' --weak s" in shown.out
    assert "it needs 200 outcomes" in shown.out
    assert shown.err == ""


def test_each_server_gets_its_own_key(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = _prompts(tmp_path / "prompts.jsonl", 1)
    monkeypatch.setenv("OUR_KEY", "ours")
    monkeypatch.setenv("THEIR_KEY", "theirs")
    _Models.keys.clear()
    command = ["policy", "outcomes", "--prompts", str(prompts), "--small", f"{url}#s", "--large", f"{url}#l"]
    command += ["--check", "number", "--out", str(tmp_path / "o"), "--runtime-dir", str(tmp_path), "--yes"]
    assert main([*command, "--key-env", "OUR_KEY", "--large-key-env", "THEIR_KEY"]) == 0
    assert _Models.keys == {"s": "Bearer ours", "l": "Bearer theirs"}


def test_an_interrupted_run_keeps_its_outcomes_and_states_it(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, out = _prompts(tmp_path / "prompts.jsonl", 60), tmp_path / "out.jsonl"
    monkeypatch.setattr(
        "gateway.cli.outcomes_command._progress", lambda _: lambda _: os.kill(os.getpid(), signal.SIGINT)
    )
    command = ["policy", "outcomes", "--prompts", str(prompts), "--small", f"{url}#s", "--large", f"{url}#l"]
    command += ["--check", "number", "--out", str(out), "--yes", "--runtime-dir", str(tmp_path), "--concurrency", "1"]
    # Servers that other tests ran in this process may have left a handler of theirs.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(command) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "keeps the outcomes so far" in capsys.readouterr().err
    assert len(out.read_bytes().splitlines()) == 1


def test_without_a_terminal_or_yes_nothing_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = _prompts(tmp_path / "prompts.jsonl", 2)
    command = ["policy", "outcomes", "--prompts", str(prompts), "--small", "http://x#s", "--large", "http://x#l"]
    assert main([*command, "--check", "exact", "--out", str(tmp_path / "o"), "--runtime-dir", str(tmp_path)]) == 2
    assert "give --yes to go ahead" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--check", "exact", "--key-env", "NO_SUCH_KEY"], "the environment has no NO_SUCH_KEY"),
        (["--check", "odd"], "--check: expected one of exact, contains, regex, number"),
        ([], "--check --judge"),
    ],
)
def test_wrong_flags_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    prompts = _prompts(tmp_path / "prompts.jsonl", 2)
    command = ["policy", "outcomes", "--prompts", str(prompts), "--small", "http://x#s", "--large", "http://x#l"]
    command += ["--out", str(tmp_path / "o"), "--runtime-dir", str(tmp_path)]
    try:
        code = main([*command, *flags])
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    assert message in capsys.readouterr().err
