"""A mapping that stays small."""

from gateway.util.bounded_dict import Recent


def test_one_more_than_the_limit_forgets_the_one_put_longest_ago() -> None:
    recent: Recent[str, int] = Recent(2)
    for key, value in (("a", 1), ("b", 2), ("c", 3)):
        recent[key] = value
    assert dict(recent) == {"b": 2, "c": 3}


def test_what_is_put_again_is_new_and_outlasts_what_was_put_after_it() -> None:
    recent: Recent[str, int] = Recent(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        recent[key] = value
    assert dict(recent) == {"a": 3, "c": 4}


def test_reading_does_not_make_a_key_new() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["a"], recent["b"] = 1, 2
    assert recent["a"] == recent.get("a") == 1
    recent["c"] = 3
    assert list(recent) == ["b", "c"]
