"""A request's id, and the time in each stage of its way."""

from __future__ import annotations

import random
from uuid import UUID

from gateway.timeline import RequestIds, Stage, Timeline, upstream_request_id


def test_ids_differ_and_have_one_form() -> None:
    ids = RequestIds(random.Random(3))
    found = {ids.next() for _ in range(1000)}
    assert len(found) == 1000
    assert all(len(one) == 28 and one.startswith("req_") and int(one[4:], 16) >= 0 for one in found)


def test_stages_add_up_to_the_whole_and_a_second_visit_adds_to_the_first() -> None:
    timeline = Timeline(10.0)
    for stage, at in ((Stage.READ, 10.5), (Stage.QUEUE, 11.0), (Stage.UPSTREAM_FIRST_BYTE, 12.0), (Stage.QUEUE, 12.25)):
        timeline.mark(stage, at)
    assert timeline.stages_ms() == {"read": 500.0, "queue": 750.0, "upstream_first_byte": 1000.0}
    assert sum(timeline.stages_ms().values()) == timeline.total_s() * 1000


def test_time_measured_elsewhere_is_not_charged_twice() -> None:
    timeline = Timeline(10.0)
    timeline.charge(Stage.CONNECT, 0.25)
    timeline.mark(Stage.UPSTREAM_FIRST_BYTE, 11.0)
    assert timeline.stages_ms() == {"connect": 250.0, "upstream_first_byte": 750.0}


def test_a_stage_that_took_no_time_is_reported_and_one_never_entered_is_not() -> None:
    timeline = Timeline(10.0)
    timeline.mark(Stage.TRIM, 10.0)
    assert timeline.stages_ms() == {"trim": 0.0}


def test_upstreams_get_a_request_id_that_is_also_a_uuid() -> None:
    made = RequestIds(random.Random(1)).next()
    given = upstream_request_id(made).decode()
    assert given.startswith(made.removeprefix("req_"))
    assert UUID(given).hex == given
