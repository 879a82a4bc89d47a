"""Fields of submitted documents: errors name their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.admin.api.fields import Reason, Remark, RequestBody, fill
from gateway.errors import InvalidRequest
from tests.gateway.admin.test_access import gateway, get, post


async def test_what_is_wrong_with_a_form_is_stated_in_words(tmp_path: Path) -> None:
    async with gateway(tmp_path) as stack:
        anna = {"name": "anna", "role": "admin", "password": "short"}
        assert (await post(stack, "admins", anna)).error["message"] == "password: expected at least 10 characters."
        bad = (await post(stack, "admins", {**anna, "name": "a b"})).error
        assert bad["message"].startswith("name: expected 1 to 64 of letters, digits")
        assert bad["param"] == "name"
        reply = await get(stack, "policy/revisions/first")
        assert (reply.status, "-1" in reply.error["message"]) == (404, False)


class _Change(RequestBody, frozen=True, kw_only=True):
    reason: Reason
    remark: Remark = ""


@pytest.mark.parametrize("text", ["one\ntwo", "end\n", "a\tb", "a\rb", "\x1b[31m", "\x85", "a\u2028b"])
@pytest.mark.parametrize("field", ["reason", "remark"])
def test_a_reason_is_one_line_without_control_characters(field: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{field}: expected text in one line") as caught:
        fill(_Change, {"reason": "why not", field: text})
    assert caught.value.param == field


def test_a_reason_is_any_text_of_a_line() -> None:
    assert fill(_Change, {"reason": 'größer: 漢 — it\'s 5 % "better"'}).remark == ""
    with pytest.raises(InvalidRequest, match="reason: expected at least 1 characters"):
        fill(_Change, {"reason": ""})
