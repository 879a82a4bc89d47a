"""Near misses share a topic with what is stored, and differ in what a cache may not ignore."""

from __future__ import annotations

from loadtests.engine.prediction.support_stream import support_stream


def test_kinds_differ_from_the_stored_question_as_named() -> None:
    stream = support_stream(1)
    sizes = {len(questions) for questions in stream.values()}
    assert sizes == {12}
    for kind, questions in stream.items():
        for question in questions:
            stored, sent = question.stored[-1]["content"], question.sent[-1]["content"]
            assert "{" not in stored + sent
            assert (stored == sent) == (kind == "equal")
            shared = set(stored.split()) & set(sent.split())
            if kind == "detail":
                assert len(shared) >= len(set(stored.split())) - 3


def test_the_seed_decides_the_order_of_all_kinds_alike() -> None:
    one, other = support_stream(1), support_stream(2)
    assert [question.stored for question in one["detail"]] != [question.stored for question in other["detail"]]
    for stream in (one, other):
        assert (
            len({tuple(question.stored[-1]["content"] for question in questions) for questions in stream.values()}) == 1
        )
