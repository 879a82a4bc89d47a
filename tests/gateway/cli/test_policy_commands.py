"""`penstock policy`, `keys`, `tenants`, `admin` and `audit` against a running gateway."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.doctor import check_policy_in_force
from gateway.cli.main import main
from gateway.config.running import RunningFile
from gateway.config.sources import config_of
from tests.gateway.admin.handlers.test_policy import append
from tests.gateway.stack import Stack, chat, policy_text, running


class Shell:
    """Commands beside a running gateway."""

    def __init__(self, stack: Stack, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.stack = stack
        self.folder = folder
        self._capsys = capsys
        self._settings = folder / "penstock.toml"

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        self._capsys.readouterr()
        code = await asyncio.to_thread(main, [*arguments, "--config", str(self._settings)])
        reported = self._capsys.readouterr()
        return code, reported.out, reported.err

    async def json(self, *arguments: str) -> Any:
        """What a command that works prints with --json."""
        code, out, err = await self.run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    def file(self, text: str, name: str = "new.yaml") -> str:
        """A policy file."""
        path = self.folder / name
        path.write_text(text)
        return str(path)


@asynccontextmanager
async def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], **settings: Any) -> AsyncIterator[Shell]:
    lines = [f'admin.listen = "unix:{tmp_path}/admin.sock"', f'process.runtime_dir = "{tmp_path}"']
    (tmp_path / "penstock.toml").write_text("\n".join(lines))
    text = policy_text(tmp_path).replace("routes:\n", "tenants:\n  - {id: shop}\n\nroutes:\n")
    async with running(tmp_path, policy=text, settings={"policy.source": "store", **settings}) as stack:
        yield Shell(stack, tmp_path, capsys)


async def test_an_apply_shows_what_it_reaches_calls_and_is_reported_in_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path, capsys) as sh:
        later = (tmp_path / "policy.yaml").read_text().replace("total_ms: 20000", "total_ms: 25000", 1)
        file = sh.file(later)
        monkeypatch.setattr("sys.stdin", io.StringIO())
        code, out, err = await sh.run("policy", "apply", file, "--reason", "longer answers")
        assert (code, out, "--yes" in err) == (2, "", True)
        code, out, _ = await sh.run("policy", "apply", file, "--reason", "longer answers", "--yes")
        assert (code, "revision 2 (" in out) == (0, True)
        assert "~ route main: timeouts.total_ms 20000 → 25000" in out
        assert "reaches: every tenant; routes: main" in out
        code, out, _ = await sh.run("policy", "history")
        assert [line.split()[0] for line in out.splitlines()] == ["2", "1"]
        assert "longer answers" in out.splitlines()[0]
        first, _, exported = (await sh.run("policy", "export"))[1].partition("\n")
        assert (first.startswith("# revision 2-"), exported) == (True, later)
        code, out, _ = await sh.run("policy", "rollback", "1", "--reason", "no", "--yes")
        assert code == 0
        assert (await sh.json("policy", "history"))["revisions"][0]["of"] == 1


async def test_a_bad_file_is_refused_with_its_lines_and_a_late_one_with_what_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        text = (tmp_path / "policy.yaml").read_text()
        bad = sh.file(text.replace("select: {policy", "selct: {policy", 1), "bad.yaml")
        code, _, err = await sh.run("policy", "apply", bad, "--reason", "typo", "--yes")
        assert code == 1
        assert f"{bad}:15:5: routes[0].selct: unknown key; did you mean" in err
        etag = (await sh.json("policy", "history"))["revisions"][0]["etag"]
        first = sh.file(text.replace("total_ms: 20000", "total_ms: 25000"))
        assert (await sh.run("policy", "apply", first, "--reason", "one", "--yes"))[0] == 0
        late = sh.file(text + "# late\n", "late.yaml")
        code, _, err = await sh.run("policy", "apply", late, "--reason", "two", "--yes", "--if-match", etag)
        assert code == 1
        assert "local has made revision 2 since (one)" in err
        assert "timeouts.total_ms 20000 → 25000" in err


async def test_an_exported_file_undoes_nobody_elses_change_and_may_be_applied_again_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        mine = tmp_path / "mine.yaml"
        assert (await sh.run("policy", "export", "-o", str(mine)))[0] == 0
        mine.write_text(mine.read_text().replace("total_ms: 20000", "total_ms: 25000"))
        apply = ("policy", "apply", str(mine), "--yes", "--reason", "longer answers")
        code, out, _ = await sh.run(*apply)
        assert (code, 'its first line is "# revision 2-' in out) == (0, True)
        assert "# revision" not in (await sh.json("policy", "export"))["document"]
        code, out, _ = await sh.run(*apply)
        assert (code, "nothing changes" in out, "revision 2 (" in out) == (0, True, True)
        mine.write_text(mine.read_text().replace("total_ms: 25000", "total_ms: 30000"))
        assert (await sh.run(*apply))[0] == 0

        await sh.json("tenants", "new", "bank", "--reason", "a new product")
        await sh.json("keys", "new", "--store", "--optional", "--tenant", "bank", "--id", "first")
        mine.write_text(mine.read_text().replace("total_ms: 30000", "total_ms: 35000"))
        before, edited = await sh.json("policy", "export"), mine.read_text()
        canary = ("policy", "canary", "start", str(mine), "--percent", "10", "--yes", "--reason", "try")
        for command in (apply, canary):
            code, _, err = await sh.run(*command)
            assert code == 1
            assert "local has made revision 4 since (a new product)" in err
            assert "tenant bank" in err
            assert f'{mine} has the line "# revision 3-' in err
            assert f"give --if-match {before['revision']['etag'].strip(chr(34))}." in err
        assert ((await sh.json("policy", "export")), mine.read_text()) == (before, edited)

        newest = before["revision"]["etag"].strip('"')
        assert (await sh.run(*apply, "--if-match", newest))[0] == 0
        assert mine.read_text().startswith("# revision 5-")
        code, out, _ = await sh.run("keys", "list")
        assert out.split()[:3] == ["bank", "first", "no"]
        assert "no tenant" in out
        code, _, err = await sh.run("keys", "require")
        assert (code, "no tenant bank" in err) == (1, True)


async def test_a_plan_warns_of_requests_that_would_be_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys, **{"telemetry.recorder.mode": "features"}) as sh:
        for number in range(8):
            body = chat(user=f"u{number}", model="auto" if number % 4 else "solo")
            assert (await sh.stack.call(body)).status == 200
        file = sh.file((tmp_path / "policy.yaml").read_text().partition("  - id: solo\n")[0])
        async with asyncio.timeout(30):
            while "8 recorded requests" not in (out := (await sh.run("policy", "plan", file))[1]):
                await asyncio.sleep(0.1)
        assert "warning: 2 of 8 recorded requests would be refused: model_not_found (in force: 0)" in out
        assert "  route main: 75.0% → 75.0%" in out
        assert "  moved: 2 from route solo to refused" in out


async def test_a_refused_revision_is_marked_in_the_history_and_by_the_doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path, capsys) as sh:
        revision = (await sh.json("policy", "history"))["revisions"][0]["revision"]
        config = config_of({"process.runtime_dir": tmp_path, "admin.listen": f"unix:{tmp_path}/admin.sock"})

        def examined() -> list[tuple[str, str]]:
            with RunningFile(tmp_path, public="127.0.0.1:1", admin=f"unix:{tmp_path}/admin.sock"):
                return [(check.level, check.message) for check in check_policy_in_force(config)]

        assert await asyncio.to_thread(lambda: list(check_policy_in_force(config))) == []  # nothing runs by its file
        assert await asyncio.to_thread(examined) == [("ok", f"in force here now: revision {revision}")]
        await append(tmp_path, (tmp_path / "policy.yaml").read_text().replace("version: 1", "version: 99"), number=2)
        async with asyncio.timeout(10):
            while (await sh.json("policy", "history"))["status"]["is_current"]:
                await asyncio.sleep(0.02)
        code, out, _ = await sh.run("policy", "history")
        warning, second, first = out.splitlines()
        assert code == 0
        assert warning.startswith(f"warning: revision {revision} is in force at this gateway: revision 2: ")
        assert "expected 1, got 99" in warning
        assert second.endswith("refused: because")
        assert "refused" not in first
        ((level, message),) = await asyncio.to_thread(examined)
        assert (level, message.startswith(f"revision {revision} is in force, not the newest: revision 2: ")) == (
            "fail",
            True,
        )


async def test_no_reason_forges_a_line_of_a_listing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged = "fine\n    9  2026-01-01 00:00:00Z  anna         policy.apply"
    async with shell(tmp_path, capsys) as sh:
        text = (tmp_path / "policy.yaml").read_text()
        file = sh.file(text.replace("total_ms: 20000", "total_ms: 25000"))
        code, _, err = await sh.run("policy", "apply", file, "--yes", "--reason", forged)
        assert (code, "reason: expected text in one line" in err) == (1, True)
        await append(tmp_path, text + "# two\n", number=2, reason=forged)
        async with asyncio.timeout(10):
            while len((await sh.run("policy", "history"))[1].splitlines()) < 2:
                await asyncio.sleep(0.02)
        out = (await sh.run("policy", "history"))[1]
        assert [line.split()[0] for line in out.splitlines()] == ["2", "1"]
        assert "fine\\n    9  2026" in out
        code, _, err = await sh.run(
            "policy", "apply", file, "--yes", "--reason", "mine", "--if-match", "1-0123456789ab"
        )
        assert (code, "since (fine\\n" in err) == (1, True)


async def test_show_without_a_file_is_the_policy_in_force_of_what_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        code, out, _ = await sh.run("policy", "show")
        assert (code, out.splitlines()[1]) == (0, f"# It is the configured policy; nothing runs in {tmp_path}.")
        with RunningFile(tmp_path, public="127.0.0.1:1", admin=f"unix:{tmp_path}/admin.sock"):
            code, out, err = await sh.run("policy", "show")
            assert (code, err) == (0, "")
            revision = (await sh.json("policy", "history"))["revisions"][0]["revision"]
            assert out.splitlines()[0] == f"# the policy in force at unix:{tmp_path}/admin.sock, revision {revision}"
            assert ("- id: shop" in out, "- id: main" in out) == (True, True)
            shown = await sh.json("policy", "show")
            assert (shown["file"], shown["revision"]) == (None, revision)
            assert [tenant["id"] for tenant in shown["policy"]["tenants"]] == ["shop"]
            file = sh.file((tmp_path / "policy.yaml").read_text().replace("total_ms: 20000", "total_ms: 25000"))
            code, out, _ = await sh.run("policy", "show", file)
            assert (code, out.startswith(f"# {file}, revision "), "total_ms: 25000" in out) == (0, True, True)


async def test_errors_name_commands_and_no_endpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path, capsys) as sh:
        code, _, err = await sh.run("keys", "revoke", "shop", "none")
        assert (code, "penstock keys list shows them" in err, "/admin/api" in err) == (1, True, False)
        monkeypatch.setattr(
            "sys.stdin", io.StringIO('{"model": "none", "messages": [{"role": "user", "content": "a"}]}')
        )
        code, _, err = await sh.run("explain", "--request", "-")
        assert (code, "penstock policy show" in err, "/v1/models" in err) == (1, True, False)
        await sh.json("keys", "new", "--store", "--tenant", "shop", "--id", "only")
        code, _, err = await sh.run("keys", "revoke", "shop", "only")
        assert (code, "give --then keyless" in err, "or --then nobody." in err, '"then"' in err) == (
            1,
            True,
            True,
            False,
        )


async def test_flags_are_checked_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unread(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            raise AssertionError("stdin is read")

        readline = read  # type: ignore[assignment]

        def isatty(self) -> bool:
            return True

    async with shell(tmp_path, capsys) as sh:
        monkeypatch.setattr("sys.stdin", Unread())
        file = sh.file("schema_version: 1\n")
        for command, expected in (
            (["explain", "--request", "-", "--token-file", "/nonexistent"], "/nonexistent"),
            (["explain", "req_1", "--tenant", "a"], "--tenant: belongs to --request"),
            (["admin", "create", "ann", "--url", "http://127.0.0.1:1"], "no gateway answers"),
            (["admin", "create", "ann", "--password-stdin", "--oidc-subject", "s"], "--password-stdin"),
            (["policy", "canary", "start", file, "--percent", "0", "--reason", "r"], "--percent: expected 1 to 100"),
            (["diagnose", "--seconds", "90"], "--seconds: expected 0.2 to 60"),
            (["top", "--window-s", "7"], "--window-s: expected one of 60, 300, 900, 3600"),
        ):
            code, _, err = await sh.run(*command)
            assert code in (1, 2)
            assert expected in err


async def test_two_files_are_compared_without_a_gateway(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(policy_text(tmp_path))
    new.write_text(policy_text(tmp_path).replace("max_in_flight: 8", "max_in_flight: 9"))
    assert main(["policy", "diff", str(old), str(new)]) == 0
    assert "~ deployment small: limits.max_in_flight 8 → 9" in capsys.readouterr().out
    assert main(["policy", "diff", str(old), str(new), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["new"] == 9


async def test_a_starter_is_written_once_and_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "policy.yaml")
    assert main(["policy", "init", file]) == 0
    assert main(["policy", "init", file]) == 2
    assert main(["policy", "check", file]) == 0
    assert "2 tests passed" in capsys.readouterr().out


async def test_an_edit_by_path_keeps_comments_and_changes_nothing_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        body = {"set": [{"path": "routes[0].timeouts.total_ms", "value": 25000}]}
        reply = await sh.stack.call(body, admin=True, path="/admin/api/policy/edit")
        assert [change["text"] for change in reply.json["changes"]] == ["route main: timeouts.total_ms 20000 → 25000"]
        assert reply.json["document"].count("\n") == (tmp_path / "policy.yaml").read_text().count("\n")
        bad = {"set": [{"path": "routes[7].id", "value": "x"}]}
        assert (await sh.stack.call(bad, admin=True, path="/admin/api/policy/edit")).error["param"] == "set"


async def test_every_command_of_a_policy_and_of_keys_speaks_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        assert (await sh.json("policy", "export"))["revision"]["number"] == 1
    file = str(tmp_path / "new.yaml")
    litellm = tmp_path / "litellm.yaml"
    litellm.write_text("model_list:\n  - {model_name: m, litellm_params: {model: openai/x, api_base: 'http://h:1'}}\n")
    found = {}
    for command in (
        ["policy", "init", file],
        ["policy", "check", file],
        ["policy", "prove", file],
        ["policy", "show", file],
        ["policy", "schema"],
        ["policy", "import-litellm", str(litellm)],
        ["keys", "new", "--tenant", "shop", "--id", "web"],
    ):
        capsys.readouterr()
        assert main([*command, "--json"]) == 0
        found[" ".join(command[:2])] = json.loads(capsys.readouterr().out)
    proof = found["policy check"].pop("proof")
    assert found["policy check"] == {"file": file, "ok": True, "num_tests": 2, "problems": [], "warnings": []}
    assert (proof["violations"], proof["open_questions"]) == ([], [])
    assert found["policy prove"] == {"file": file, "ok": True, **proof}
    assert found["policy show"]["policy"]["schema_version"] == 1
    assert found["policy import-litellm"]["policy"]["deployments"][0]["url"].startswith("http://h:1")
    assert (found["keys new"]["tenant"], found["keys new"]["id"]) == ("shop", "web")


GAP = """\
schema_version: 1
deployments: [{id: a, url: "http://127.0.0.1:1", model: m}]
routes:
  - {id: short, match: {when: 'request.turns <= 2'}, select: {candidates: [a]}}
  - {id: two, match: {when: 'request.turns == 2'}, select: {candidates: [a]}}
"""


def test_a_proof_prints_each_violation_with_its_line_and_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GAP)
    assert main(["policy", "prove", str(file)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == (
        f"{file}:5:5: routes[1]: route two is never reached: short takes every request that it matches; the one shown "
        "takes route short"
    )
    assert out[1] == '  request: {"model": "auto", "turns": 2}'
    assert "proven: no key reaches more than its tenant" in out
    assert main(["policy", "check", str(file)]) == 0
    assert "routes[1]: warning: route two is never reached" in capsys.readouterr().out


def test_a_check_refuses_a_document_whose_total_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GAP + "total: [auto]\n")
    assert main(["policy", "check", str(file)]) == 1
    assert 'total[0]: "auto" is not total' in capsys.readouterr().out
    assert main(["policy", "prove", str(file), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in shown["violations"]] == ["not_total", "unreachable_route"]
    assert main(["policy", "prove", str(tmp_path / "none.yaml")]) == 2
    file.write_text("schema_version: 1\n")
    assert main(["policy", "prove", str(file)]) == 1


async def test_a_plan_shows_what_does_not_hold_for_all_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GAP)
    async with shell(tmp_path, capsys) as sh:
        plan = await sh.json("policy", "plan", str(file), "--no-replay")
    assert [one["kind"] for one in plan["proof"]["violations"]] == ["unreachable_route"]
