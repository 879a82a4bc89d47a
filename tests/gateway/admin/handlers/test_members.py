"""Lists of members in the store, read and written over the admin API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.stack import running

PATH = "/admin/api/members/engines"


async def test_a_list_is_written_read_and_audited(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        assert (await stack.get(PATH, admin=True)).status == 404
        body = {"members": ["10.0.0.2:8000", "10.0.0.1:8000", "10.0.0.2:8000"], "reason": "scaled"}
        written = await stack.call(body, admin=True, path=PATH, method="PUT")
        expected = ["10.0.0.1:8000", "10.0.0.2:8000"]
        assert (written.status, written.json["members"]) == (200, expected)
        shown = (await stack.get(PATH, admin=True)).json
        assert (shown["list"], shown["members"], shown["version"]) == ("engines", expected, written.json["version"])
        entry = (await stack.get("/admin/api/audit", admin=True)).json["entries"][-1]
        assert (entry["action"], entry["target"], entry["reason"]) == ("members.write", "engines", "scaled")


@pytest.mark.parametrize("members", [["nonsense"], ["a:99999"], ["fd00::1:80"], "a:1", [1], None, ["a:1"] * 1025])
async def test_a_list_that_is_none_is_refused_and_changes_nothing(tmp_path: Path, members: object) -> None:
    async with running(tmp_path) as stack:
        refused = await stack.call({"members": members}, admin=True, path=PATH, method="PUT")
        assert (refused.status, refused.error["param"].partition("[")[0]) == (400, "members")
        assert (await stack.get(PATH, admin=True)).status == 404


async def test_a_name_has_a_bounded_length(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        long = await stack.call({"members": []}, admin=True, path=f"/admin/api/members/{'x' * 65}", method="PUT")
        assert long.status == 404
