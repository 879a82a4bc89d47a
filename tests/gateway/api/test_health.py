"""Probes: the state of the process, of its deployments and of its start."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.stack import chat, running


async def test_probes_answer_on_both_listeners(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for admin in (False, True):
            assert (await stack.get("/livez", admin=admin)).json == {"status": "live"}
            ready = await stack.get("/readyz", admin=admin)
            assert ready.status == 200
            assert ready.json["deployments"] == {"small": True, "large": True}
            assert (await stack.get("/startupz", admin=admin)).status == 200


async def test_not_ready_when_no_deployment_is_and_ready_again_when_one_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.get("/startupz")
        stack.small.is_ready = stack.large.is_ready = False
        await stack.gateway._prober.probe_all()

        reply = await stack.get("/readyz")
        assert (reply.status, reply.error["code"]) == (503, "not_ready")
        assert (await stack.get("/livez")).status == 200
        assert (await stack.get("/startupz")).status == 200

        stack.large.is_ready = True
        await stack.gateway._prober.probe_all()
        assert (await stack.get("/readyz")).status == 200
        assert (await stack.call(chat())).headers["x-penstock-deployment"] == "large"


async def test_a_deployment_that_was_never_ready_is_in_the_log_with_the_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        probe = stack.gateway._prober
        probe._known.clear()  # as at a start
        stack.small.is_ready = stack.gateway._current().deployments["small"].is_ready = False
        await probe.probe_all()
        await probe.probe_all()

        reported = [line for line in stack.lines("deployment_not_ready") if line["deployment"] == "small"]
        assert [line["reason"] for line in reported] == ["status 503"]
