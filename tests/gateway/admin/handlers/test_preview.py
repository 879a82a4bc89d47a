"""Previews: what would become of a request, without sending it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import observe
from tests.gateway.cli.test_observe import options
from tests.gateway.deployments.test_readiness import warming
from tests.gateway.stack import PRICED_PAIR, chat, running

_TRIMMED = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big}}
routes:
  - id: main
    select: {{candidates: [small, large]}}
    trim: {{budget_tokens: 20, strategies: [minify, drop_old_turns]}}
    cache: {{mode: exact}}
"""


def conversation() -> dict[str, Any]:
    """Three turns, of which the first is long and the last short."""
    old = [{"role": "user", "content": "x" * 4000}, {"role": "assistant", "content": "y" * 400}]
    return {"model": "auto", "messages": [*old, {"role": "user", "content": "and now?"}]}


async def test_a_preview_states_what_would_be_cut_and_who_might_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, policy=_TRIMMED.format(folder=tmp_path)) as stack:
        file = tmp_path / "request.json"
        file.write_text(json.dumps(conversation()))
        assert (
            await asyncio.to_thread(observe.show_request, options(stack, "explain", "--request", str(file), "--json"))
            == 0
        )
        found = json.loads(capsys.readouterr().out)
        assert found["route"] == "main"
        assert found["trim"]["tokens_after"] < found["trim"]["tokens_before"]
        assert [cut["strategy"] for cut in found["trim"]["cut"]] == ["drop_old_turns"]
        assert found["trim"]["messages"][-1]["content"] == "and now?"
        assert [candidate["id"] for candidate in found["candidates"]] == ["small", "large"]
        assert found["cache"]["mode"] == "exact"
        assert not stack.small.received
        assert not stack.large.received
        assert await asyncio.to_thread(observe.show_request, options(stack, "explain", "--request", str(file))) == 0
        assert "drop_old_turns" in capsys.readouterr().out


_BY_QUALITY = (
    PRICED_PAIR
    + """
routes:
  - id: main
    select: {{policy: cascade, min_quality: 0.9, cascade: {{skip_below: 0.3}}, candidates: [small, large]}}
"""
)


@pytest.mark.parametrize(
    ("text", "chosen", "why"),
    [
        ("How much does shipping to Croatia cost?", "small", "reaches skip_below 0.3"),
        ("Which of Croatia or Hungary has the lowest shipping price?", "large", "is below skip_below 0.3"),
    ],
)
async def test_a_preview_states_who_would_be_chosen_by_predicted_quality(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, chosen: str, why: str
) -> None:
    async with running(tmp_path, policy=_BY_QUALITY.format(folder=tmp_path)) as stack:
        body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
        found = (await stack.call({"request": body}, path="/admin/api/explain", admin=True)).json
        select, (small, large) = found["select"], found["candidates"]
        assert (select["chosen"], select["min_quality"], select["skip_below"]) == (chosen, 0.9, 0.3)
        assert 0.0 <= small["quality"] <= 1.0
        assert (large["quality"], small["dropped"], small["is_known_prompt"]) == (None, None, True)
        file = tmp_path / "request.json"
        file.write_text(json.dumps(body))
        assert await asyncio.to_thread(observe.show_request, options(stack, "explain", "--request", str(file))) == 0
        out = capsys.readouterr().out
        assert f"{chosen} would answer, by cascade: predicted quality" in out
        assert why in out
        assert not stack.small.received


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ({"request": {"model": "auto", "messages": []}}, "messages"),
        ({"request": conversation(), "tenant": "nobody"}, "tenant"),
        ({"request": {**conversation(), "api_base": "http://x"}}, "api_base"),
        ({"request": "text"}, "request"),
        ({}, None),
    ],
)
async def test_a_preview_of_nonsense_is_refused_as_the_request_would_be(
    tmp_path: Path, document: Mapping[str, Any], param: str | None
) -> None:
    async with running(tmp_path) as stack:
        token = (tmp_path / "admin.token").read_text().strip()
        reply = await stack.call(
            document, admin=True, path="/admin/api/explain", headers={"authorization": f"Bearer {token}"}
        )
        assert reply.status == 400
        assert reply.error["param"] == param


async def test_a_preview_states_when_a_deployment_will_be_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await warming(stack)
        shown = (await stack.call({"request": chat()}, path="/admin/api/explain", admin=True)).json
        assert [5.0 < candidate["ready_in_s"] <= 8.0 for candidate in shown["candidates"]] == [True, True]
        deployments = (await stack.get("/admin/api/deployments", admin=True)).json["deployments"]
        assert {one["state"] for one in deployments} == {"starting"}


async def test_a_preview_names_a_drain_by_an_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as stack:
        await stack.call({"drain": True}, admin=True, path="/admin/api/deployments/small/drain")
        file = tmp_path / "request.json"
        file.write_text(json.dumps(chat("solo")))
        assert await asyncio.to_thread(observe.show_request, options(stack, "explain", "--request", str(file))) == 0
        shown = capsys.readouterr().out
        assert "no candidate left; small drained" in shown
        assert "drained by an operator, 0 of 8 permits out, not considered: drained by an operator" in shown
        assert "ready" not in shown.replace("already", "")
