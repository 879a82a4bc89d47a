"""`model:adapter` takes the model's route, to the deployments with the adapter alone."""

from __future__ import annotations

import pytest

from gateway.errors import ModelNotAllowed, NotFound
from tests.gateway.routing.test_router import snapshot

TEXT = """
schema_version: 1
deployments:
  - {id: one, url: "unix:/tmp/none/one.sock", model: tiny}
  - {id: two, url: "unix:/tmp/none/two.sock", model: tiny}
  - {id: large, url: "unix:/tmp/none/large.sock", model: big}
tenants:
  - {id: support, models: [chat], keys: []}
routes:
  - id: chat
    match: {models: [chat]}
    select: {policy: first_available, candidates: [one, two], fallback: [large]}
  - {id: written, match: {models: ["tiny:legal"]}, select: {candidates: [large]}}
"""


def test_only_deployments_with_the_adapter_are_candidates() -> None:
    made = snapshot(TEXT)
    made.deployments["two"].note_adapters({"law"})
    planned = made.router.match("chat:law", None, {})
    assert planned.route.id == "chat"
    assert planned.adapter == "law"
    assert [live.id for live, _ in planned.candidates] == ["two"]
    assert planned.fallbacks == ()
    assert made.router.match("chat:law", None, {}) is planned
    assert [live.model_with(planned.adapter) for live, _ in planned.candidates] == ["tiny:law"]
    assert made.router.match("chat", None, {}).adapter is None

    made.deployments["one"].note_adapters({"law"})
    assert [live.id for live, _ in made.router.match("chat:law", None, {}).candidates] == ["one", "two"]


def test_caches_keep_the_answers_of_adapters_apart() -> None:
    made = snapshot(TEXT)
    for name in ("one", "two"):
        made.deployments[name].note_adapters({"law", "tax"})
    candidates = {
        made.router.match(name, None, {}).cache_candidates for name in ("tiny", "tiny:law", "tiny:tax", "one:tax")
    }
    assert candidates == {b"tiny", b"tiny:law", b"tiny:tax"}


@pytest.mark.parametrize("model", ["chat:law", "chat:", ":law", "nobody:law", "chat:law:more", "big:law"])
def test_an_adapter_that_no_deployment_has_is_an_unknown_model(model: str) -> None:
    made = snapshot(TEXT)
    made.deployments["large"].note_adapters({"other"})
    with pytest.raises(NotFound) as caught:
        made.router.match(model, None, {})
    assert caught.value.code == "model_not_found"


def test_a_name_that_the_policy_has_comes_first() -> None:
    made = snapshot(TEXT)
    made.deployments["one"].note_adapters({"legal"})
    planned = made.router.match("tiny:legal", None, {})
    assert (planned.route.id, planned.adapter) == ("written", None)


def test_a_tenant_may_use_the_adapters_of_its_models() -> None:
    made = snapshot(TEXT)
    made.deployments["one"].note_adapters({"law"})
    assert made.router.match("chat:law", "support", {}).adapter == "law"
    with pytest.raises(ModelNotAllowed):
        made.router.match("tiny:law", "support", {})
    assert made.router.adapters_of("chat", "support") == ("law",)
    assert made.router.adapters_of("big", None) == ()
