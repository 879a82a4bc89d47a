"""Who is excluded of rotation, who is let in early, and what is left when nobody is fit."""

from __future__ import annotations

import pytest

from gateway.deployments.health.ejection import EjectionRules, FailureKind
from gateway.deployments.rotation import excluded
from gateway.errors import Shed
from gateway.routing.snapshot import PolicySnapshot
from tests.gateway.routing.snapshots import ManualClock, snapshot_of

TEXT = """
schema_version: 1
deployments:
  - {id: a, url: "unix:/tmp/none/a.sock", model: m, limits: {max_in_flight: 2}}
  - {id: b, url: "unix:/tmp/none/b.sock", model: m, limits: {max_in_flight: 2}}
  - {id: c, url: "unix:/tmp/none/c.sock", model: m, limits: {max_in_flight: 2}}
  - {id: spare, url: "unix:/tmp/none/spare.sock", model: big, limits: {max_in_flight: 2}}
  - {id: last, url: "unix:/tmp/none/last.sock", model: big, limits: {max_in_flight: 2}}
routes:
  - {id: main, match: {models: [auto]}, select: {candidates: [a, b, c], fallback: [reserve, last]}}
  - {id: alone, match: {models: [alone]}, select: {candidates: [a, b, c]}}
  - {id: reserve, match: {models: [reserve]}, select: {candidates: [spare]}}
"""
RULES = EjectionRules(consecutive_failures=1, first_s=10.0)


def eject(made: PolicySnapshot, *names: str, now: float = 0.0) -> None:
    for name in names:
        made.deployments[name].health.note_failure(now, FailureKind.STATUS)


def out(made: PolicySnapshot, now: float = 0.0) -> tuple[set[str], bool]:
    found = excluded([made.deployments[name] for name in "abc"], now)
    return set(found.ids), found.is_panic


def test_nobody_is_excluded_without_a_reason() -> None:
    assert out(snapshot_of(TEXT, RULES)) == (set(), False)


def test_the_ejected_are_excluded_until_one_may_try_them() -> None:
    made = snapshot_of(TEXT, RULES)
    eject(made, "b")

    assert out(made, 9.9) == ({"b"}, False)
    assert out(made, 10.0) == (set(), False)


def test_all_ejected_are_all_used() -> None:
    made = snapshot_of(TEXT, RULES)
    eject(made, "a", "b", "c")
    assert out(made) == (set(), True)
    made.deployments["c"].health.reset(0.0)
    made.deployments["c"].is_ready = False

    assert out(made) == (set(), True)  # c cannot be called, so a and b are all there is


def test_no_more_than_two_thirds_are_excluded_and_the_first_to_return_comes_early() -> None:
    names = [f"d{number}" for number in range(6)]
    lines = "\n".join(f'  - {{id: {name}, url: "unix:/tmp/none/{name}.sock", model: m}}' for name in names)
    text = (
        f"schema_version: 1\ndeployments:\n{lines}\nroutes: [{{id: r, select: {{candidates: [{', '.join(names)}]}}}}]"
    )
    made = snapshot_of(text, RULES)
    for position, name in enumerate(names[:5]):
        eject(made, name, now=float(position))
    found = excluded([made.deployments[name] for name in names], 5.0)

    assert found == (frozenset({"d1", "d2", "d3", "d4"}), False)


def test_one_that_requested_a_backoff_is_left_alone_even_in_a_panic() -> None:
    made = snapshot_of(TEXT, RULES)
    eject(made, "a", "b")
    made.deployments["c"].health.note_pushback(0.0, 30.0)

    assert out(made) == ({"c"}, True)


def test_a_route_without_fit_candidates_falls_back_in_the_order_written() -> None:
    made = snapshot_of(TEXT, RULES)
    planned = made.router.match("auto", None, {})
    for name in "abc":
        made.deployments[name].is_ready = False
    assert made.router.pick(planned, frozenset(), "x")[0].id == "spare"
    made.deployments["spare"].is_ready = False
    assert made.router.pick(planned, frozenset(), "x")[0].id == "last"
    made.deployments["last"].is_ready = False
    with pytest.raises(Shed):
        made.router.pick(planned, frozenset(), "x")


def test_a_fallback_is_better_than_a_panic_and_a_panic_better_than_nothing() -> None:
    made = snapshot_of(TEXT, RULES)
    planned = made.router.match("auto", None, {})
    eject(made, "a", "b", "c")
    live, decision = made.router.pick(planned, frozenset(), "x")
    assert (live.id, decision.is_panic) == ("spare", False)
    eject(made, "spare", "last")

    live, decision = made.router.pick(planned, frozenset(), "x")
    assert (live.id in "abc", decision.is_panic) == (True, True)


def test_a_retry_that_has_nobody_left_in_the_route_goes_to_its_fallback() -> None:
    made = snapshot_of(TEXT, RULES)
    planned = made.router.match("auto", None, {})

    assert made.router.pick(planned, frozenset("abc"), "x")[0].id == "spare"
    assert made.router.has_another(planned, frozenset("abc"))
    assert not made.router.has_another(made.router.match("alone", None, {}), frozenset("abc"))


def test_the_refusal_of_a_route_that_rests_states_when_it_may_be_called_again() -> None:
    clock = ManualClock()
    made = snapshot_of(TEXT, RULES, clock)
    for position, name in enumerate("abc"):
        made.deployments[name].health.note_pushback(0.0, 20.0 + position)
    clock.now = 5.0
    with pytest.raises(Shed) as caught:
        made.router.pick(made.router.match("alone", None, {}), frozenset(), "x")

    assert caught.value.retry_after_s == 15.0


def doubt(made: PolicySnapshot, *names: str, num: int = 4, seconds: float = 1.0) -> None:
    """So many requests each, without a byte for so long."""
    for name in names:
        health = made.deployments[name].health
        attempt_watches = [health.begin(0.0) for _ in range(num)]
        health.sweep(seconds)
        for attempt_watch in attempt_watches:
            attempt_watch.dropped()


@pytest.mark.parametrize(
    ("num", "seconds", "is_doubtful"), [(4, 1.0, True), (64, 9.0, True), (3, 9.0, False), (4, 0.9, False)]
)
def test_a_deployment_that_holds_several_requests_in_silence_is_left_out(
    num: int, seconds: float, is_doubtful: bool
) -> None:
    made = snapshot_of(TEXT, RULES)
    doubt(made, "a", num=num, seconds=seconds)

    assert out(made) == ({"a"} if is_doubtful else set(), False)
    made.deployments["a"].health.note_progress(seconds)
    assert out(made) == (set(), False)


def test_doubt_begins_later_where_answers_usually_take_longer() -> None:
    made = snapshot_of(TEXT, RULES)
    health = made.deployments["a"].health
    for _ in range(8):
        health.begin(0.0)
    health.sweep(5.0, 6.0)
    assert health.is_usual

    health.sweep(6.5, 6.0)
    assert not health.is_usual
    assert health.is_fit


def test_doubtful_ones_are_used_where_nobody_else_has_a_permit() -> None:
    made = snapshot_of(TEXT, RULES)
    doubt(made, "a", "b", "c")
    assert out(made) == (set(), False)

    made = snapshot_of(TEXT, RULES)
    doubt(made, "a")
    eject(made, "b")
    made.deployments["c"].is_ready = False
    assert out(made) == ({"b"}, False)


def test_a_request_goes_past_a_doubtful_first_candidate() -> None:
    made = snapshot_of(TEXT, RULES)
    planned = made.router.match("auto", "t", {})
    doubt(made, "a")

    assert made.router.pick(planned, frozenset(), "interactive")[0].id == "b"
    made.deployments["a"].health.note_progress(2.0)
    assert made.router.pick(planned, frozenset(), "interactive")[0].id == "a"
