import pytest

from engine.training.data.grade import is_right


@pytest.mark.parametrize(
    ("answer", "expected", "right"),
    [
        ("19", "19", True),
        (" 19.\n", "19", True),
        ("I don't know", "I don't know.", True),
        ("shipping  to Finland costs 8 EUROS", "Shipping to Finland costs 8 euros.", True),
        ("Shipping to Finland costs 9 euros.", "Shipping to Finland costs 8 euros.", False),
        ("190", "19", False),
        ("", "19", False),
        ('{"b": 2,"a": "x"}', '{"a": "x", "b": 2}', True),
        ('{"a": "x", "b": "2"}', '{"a": "x", "b": 2}', False),
        ('{"a": "x"', '{"a": "x"}', False),
        ('[{"a": 1}, {"a": 2}]', '[{"a": 2}, {"a": 1}]', False),
    ],
)
def test_grading_is_normalised_exact_match(answer: str, expected: str, right: bool) -> None:
    assert is_right(answer, expected) is right
