"""Nearest zones first: who serves while near ones fail, fill up and come back, on a clock of the test's own."""

from __future__ import annotations

import itertools
import random

from gateway.deployments.health.round_trip import RoundTrip
from gateway.limits.permit import AdmissionRequest
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.zone_order import FAIL_BACK_S, NEARER_S, ZoneOrder
from tests.gateway.routing.fleet import snapshot_of

TEXT = """schema_version: 1
deployments:
  - {id: far, url: 'unix:/none/far.sock', model: m, zone: tokyo, limits: {max_in_flight: 100}}
  - {id: near, url: 'unix:/none/near.sock', model: m, zone: berlin, limits: {max_in_flight: 100}}
  - {id: next, url: 'unix:/none/next.sock', model: m, zone: paris, limits: {max_in_flight: 100}}
lanes: [{id: interactive, weight: 1}]
routes:
  - id: main
    match: {models: [auto]}
    select: {policy: nearest_first, candidates: [far, near, next]}
"""
RNG = random.Random(1)
ROUND_TRIPS = {"near": 0.001, "next": 0.012, "far": 0.2}


class World:
    """A route of three zones, and the time."""

    def __init__(self, zone: str | None = "berlin") -> None:
        self.now = 100.0
        snapshot = snapshot_of(TEXT, lambda: self.now, zone=zone)
        self.live = snapshot.deployments
        self.request = AdmissionRequest(snapshot.lanes["interactive"])
        self.route: PlannedRoute = snapshot.router.match("auto", None, {})

    def measure(self, **seconds: float) -> None:
        """Have every probe of these take so long."""
        for name, each in seconds.items():
            for _ in range(16):
                self.live[name].round_trip.note(each)

    def choose(self) -> str | None:
        """The deployment of a request that comes now."""
        return self.route.decide(frozenset(), RNG).deployment

    def after(self, seconds: float) -> str | None:
        """The deployment of a request that comes later."""
        self.now += seconds
        return self.choose()

    def settled(self) -> str | None:
        """The deployment once what is measured now has held for long enough."""
        self.choose()
        return self.after(NEARER_S)


def test_the_own_zone_is_first_before_anything_is_measured() -> None:
    assert World().choose() == "near"
    assert World("tokyo").choose() == "far"


def test_the_nearest_by_round_trip_is_first_whatever_the_order_of_candidates() -> None:
    world = World(zone=None)
    world.measure(**ROUND_TRIPS)
    chosen = [world.after(1.0) for _ in range(4)]
    assert chosen[-1] == "near"
    world.live["near"].is_ready = False
    assert world.choose() == "next"
    world.live["next"].is_ready = False
    assert world.choose() == "far"


def test_a_zone_that_was_down_comes_first_again_once_it_has_been_up_for_a_while() -> None:
    world = World()
    world.measure(**ROUND_TRIPS)
    world.after(1.0)
    world.live["near"].is_ready = False
    assert world.after(1.0) == "next"
    world.live["near"].is_ready = True
    assert [world.after(3.0) for _ in range(4)] == ["next", "next", "next", "next"]  # up for 9 s at the last
    assert world.after(3.0) == "near"


def test_a_zone_that_flaps_takes_no_requests() -> None:
    world = World()
    world.measure(**ROUND_TRIPS)
    world.choose()
    chosen = []
    for step in range(40):
        world.live["near"].is_ready = step % 4 == 3  # down for three seconds, up for one
        chosen.append(world.after(1.0))
    assert set(chosen) == {"next"}
    world.live["near"].is_ready = True
    assert [world.after(1.0) for _ in range(int(FAIL_BACK_S) + 2)][-1] == "near"


def test_a_zone_on_its_way_back_serves_at_once_where_no_other_can() -> None:
    world = World()
    world.live["near"].is_ready = False
    assert world.after(1.0) in ("next", "far")
    world.live["near"].is_ready = True
    world.live["next"].is_ready = world.live["far"].is_ready = False
    assert world.after(1.0) == "near"


def test_a_full_zone_spills_over_and_is_first_again_with_some_permits_free() -> None:
    world = World()
    world.measure(**ROUND_TRIPS)
    limiter = world.live["near"].limiter
    permits = [limiter.try_acquire(world.request) for _ in range(100)]
    assert world.choose() == "next"
    for permit in permits[:9]:
        assert permit is not None
        permit.release()
    assert world.choose() == "next", "91 of 100"
    assert permits[9] is not None
    permits[9].release()
    assert world.choose() == "near"


def test_equal_round_trips_change_no_order() -> None:
    world = World()
    world.measure(near=0.0010, next=0.0009, far=0.2)
    assert [world.after(1.0) for _ in range(5)] == ["near"] * 5
    world.measure(near=0.030, next=0.020)
    assert world.settled() == "next"
    world.measure(near=0.019)  # a little nearer is not near enough to change back
    assert world.settled() == "next"
    world.measure(near=0.001)
    assert world.settled() == "near"


def test_the_first_measurement_orders_the_zones_at_once() -> None:
    world = World()
    assert world.choose() == "near"
    world.measure(near=0.030, next=0.010)
    world.choose()
    assert world.after(1.0) == "next"


def test_the_first_measurement_moves_a_zone_past_all_that_are_clearly_farther() -> None:
    world = World()
    world.measure(near=0.030, next=0.040)
    assert world.choose() == "near"
    world.measure(far=0.010)
    assert world.choose() == "far"
    world.live["far"].is_ready = False
    assert world.choose() == "near"


def test_zones_around_one_without_a_measurement_change_places_only_after_a_while() -> None:
    world = World()
    order = ZoneOrder([(world.live[name], name) for name in ("near", "far", "next")], "near")

    def nearest(now: float) -> str:
        places = order.distances(now, frozenset())
        return min(places, key=lambda name: places[name])

    world.measure(near=0.010, far=0.012, next=0.014)
    assert nearest(0.0) == "near"
    world.live["far"].round_trip = RoundTrip()  # forgotten: the zones before and after it are neighbours now
    world.measure(near=0.030)
    assert [nearest(1.0), nearest(NEARER_S)] == ["near", "near"]
    assert nearest(1.0 + NEARER_S) == "next"


def test_a_zone_that_is_nearer_for_a_moment_changes_no_order() -> None:
    world = World()
    world.measure(**ROUND_TRIPS)
    world.choose()
    world.measure(near=0.030)
    assert [world.after(1.0) for _ in range(int(NEARER_S))] == ["near"] * int(NEARER_S)
    world.measure(near=0.012)
    assert world.after(1.0) == "near"
    world.measure(near=0.030)
    assert world.after(NEARER_S) == "near", "the time counts anew"
    assert world.settled() == "next"


def test_zones_of_equal_round_trips_do_not_change_places_with_the_noise_of_their_probes() -> None:
    world, noise = World(zone=None), random.Random(3)
    chosen = []
    for _ in range(3600):
        for name in ("near", "next"):
            world.live[name].round_trip.note(0.05 * noise.lognormvariate(0.0, 0.5))
        world.live["far"].round_trip.note(0.5)
        chosen.append(world.after(1.0))
    num_changes = sum(one != other for one, other in itertools.pairwise(chosen))
    assert num_changes <= 6, "in an hour; by the round trips of each moment there are more than a hundred"


def test_ejected_candidates_count_as_down() -> None:
    world = World()
    order = ZoneOrder(
        [(world.live["far"], None), (world.live["near"], "berlin"), (world.live["next"], "paris")], "berlin"
    )
    assert order.distances(0.0, frozenset()) == {"far": 0, "near": 0, "next": 1}
    assert order.distances(1.0, frozenset({"near"})) == {"far": 0, "near": 0, "next": 1}, "one of the zone is up"
    assert order.distances(2.0, frozenset({"near", "far"})) == {"far": 1, "near": 1, "next": 0}
