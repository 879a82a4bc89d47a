"""Commands for keys, tenants, admins and the audit log, beside a running gateway."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.gateway.cli.test_policy_commands import shell


async def test_a_tenant_a_key_and_an_admin_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path, capsys) as sh:
        assert (await sh.json("tenants", "new", "bank", "--reason", "a new product"))["revision"]["number"] == 2
        assert [item["id"] for item in (await sh.json("tenants", "list"))["tenants"]] == ["bank", "shop"]
        made = await sh.json("keys", "new", "--store", "--tenant", "bank", "--id", "app")
        assert made["key"].startswith("sk-penstock-")
        assert (await sh.json("keys", "rotate", "bank", "app", "--overlap-s", "60"))["key"] != made["key"]
        assert (await sh.json("keys", "revoke", "bank", "app", "--reason", "leaked"))["state"] == "revoked"
        states = [key["state"] for key in (await sh.json("keys", "list", "--tenant", "bank"))["keys"]]
        assert sorted(states) == ["active", "revoked"]
        assert (await sh.json("keys", "require"))["is_required"]
        assert not (await sh.json("keys", "optional", "--reason", "a demo"))["is_required"]
        code, _, err = await sh.run("admin", "link")
        assert (code, "browsers cannot open a Unix socket" in err) == (1, True)
        monkeypatch.setattr("sys.stdin", io.StringIO("a long enough password\n"))
        assert (await sh.json("admin", "create", "anna", "--password-stdin"))["role"] == "admin"
        assert (await sh.run("admin", "delete", "anna"))[0] == 1  # the last one
        code, out, _ = await sh.run("audit", "list")
        actions = {"tenant.create", "key.create", "key.rotate", "key.revoke", "admin.create"}
        assert (code, {word for word in out.split() if word in actions}) == (0, actions)
        assert (await sh.run("audit", "verify"))[0] == 0


async def test_an_optional_key_comes_too_late_where_keys_are_required_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys) as sh:
        new = ("keys", "new", "--store", "--optional", "--tenant", "shop")
        code, out, _ = await sh.run(*new, "--id", "first")
        assert (code, "may still call without a key" in out, "already" in out) == (0, True, False)
        assert (await sh.run("keys", "require"))[0] == 0
        code, out, _ = await sh.run(*new, "--id", "second")
        assert (code, "Keys are required already; `penstock keys optional` ends that" in out) == (0, True)
        made = await sh.json(*new, "--id", "third")
        assert "required already" in made["note"]


def test_only_keys_of_the_store_are_optional(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "--tenant", "shop", "--optional"]) == 2
    assert "--optional: needs --store" in capsys.readouterr().err


async def test_a_key_of_the_document_cannot_expire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "--tenant", "shop", "--expires-in-s", "60"]) == 2
    assert "--store" in capsys.readouterr().err
