"""Live state of a deployment: what takes it out of service, and what it stays the state of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.deployments.health.ejection import EjectionRules
from gateway.deployments.live import LiveDeployment
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from tests.gateway.routing.snapshots import snapshot_of

TEXT = "schema_version: 1\ndeployments: [{{id: a, url: '{url}', model: {model}}}]\n"


def live_of(url: str = "http://host", model: str = "m") -> LiveDeployment:
    return snapshot_of(TEXT.format(url=url, model=model), EjectionRules()).deployments["a"]


def test_a_drained_deployment_is_ready_again_only_by_a_probe() -> None:
    live = live_of()
    live.drain(is_draining=True)
    assert (live.is_ready, live.ready_in_s(0.0)) == (False, None)
    live.drain(is_draining=False)
    assert not live.is_ready


@pytest.mark.parametrize(("state", "is_ready"), [("ready", True), ("starting", False), ("nonsense", True)])
def test_an_engine_that_reports_it_starts_gets_no_more_requests(state: str, is_ready: bool) -> None:
    live = live_of()
    live.note_stated(10.0, state)
    assert live.is_ready is is_ready
    assert (live.ready_in_s(10.0) is None) is is_ready


def test_a_url_with_a_path_is_the_base_of_the_api_and_no_engines_root() -> None:
    root, hosted = live_of("http://host"), live_of("https://host/openai/v1")
    assert (root.is_bare, root.chat_path) == (True, b"/v1/chat/completions")
    assert (hosted.is_bare, hosted.chat_path) == (False, b"/chat/completions")


def test_the_state_goes_on_for_the_same_address_and_model_only() -> None:
    live = live_of()
    entry = snapshot_of(TEXT.format(url="http://host", model="m"), EjectionRules()).policy.deployments[0]
    assert live.serves(entry)
    for other in (live_of("http://other"), live_of(model="n")):
        assert not other.serves(entry)


@pytest.mark.parametrize(("name", "is_busy"), [("own_in_flight", True), ("own_waiting", True), ("in_flight", False)])
def test_it_is_busy_by_its_own_requests_and_not_by_its_successors(name: str, is_busy: bool) -> None:
    live = live_of()
    assert not live.is_busy
    counts = {"in_flight": 3, "num_waiting": 2, "own_in_flight": 0, "own_waiting": 0, name: 1}
    live.limiter = cast(Any, SimpleNamespace(**counts))
    assert live.is_busy is is_busy


async def test_it_retires_when_its_last_request_has_ended() -> None:
    live = live_of()
    await live.retire()
    with pytest.raises(UpstreamError):
        await live.client.send(UpstreamRequest(b"GET", b"/"), ExchangeTimeouts())
