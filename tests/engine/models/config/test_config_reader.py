"""Typed reading of a JSON object: errors name the file, the key and what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.models.config.config_reader import MAX_LAYERS, MAX_SIZE, ConfigReader, ModelConfigError


def reader(**values: Any) -> ConfigReader:
    return ConfigReader(Path("config.json"), values)


def test_null_counts_as_absent_and_is_still_distinguished_from_it() -> None:
    found = reader(a=None, b=0)
    assert (found.has("a"), found.has("b"), found.has("c")) == (False, True, False)
    assert (found.is_null("a"), found.is_null("b"), found.is_null("c")) == (True, False, False)
    assert found.count("a", default=7) == 7


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("positive_integer", 0, "expected a positive integer, got 0"),
        ("positive_integer", True, "expected a positive integer, got True"),
        ("positive_integer", MAX_SIZE + 1, f"expected at most {MAX_SIZE}"),
        ("integer", 1.0, "expected an integer, got 1.0"),
        ("count", -1, "expected an integer, 0 or more"),
        ("positive_number", float("inf"), "expected a number above 0"),
        ("positive_number", "1", "expected a number above 0"),
        ("positive_numbers", [1.0, 0.0], "expected a list of numbers above 0"),
        ("boolean", 1, "expected true or false"),
        ("string", ["x"], "expected a string"),
        ("strings", "x", "expected a list of strings"),
        ("counts", [1, True], "expected a list of integers"),
        ("token_ids", [3, -1], "expected a token id or a list of them"),
        ("child", [1], "expected an object"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_place(method: str, value: object, message: str) -> None:
    with pytest.raises(ModelConfigError) as refusal:
        getattr(reader(key=value), method)("key")
    assert str(refusal.value).startswith(f"config.json: key: {message}")


def test_a_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(ModelConfigError) as refusal:
        reader(key="x" * 10_000).boolean("key")
    assert len(str(refusal.value)) < 200


def test_a_key_of_an_inner_object_is_named_by_its_path() -> None:
    child = reader(outer={"inner": "x"}).child("outer")
    assert child is not None
    with pytest.raises(ModelConfigError, match=r"outer\.inner: expected a positive integer"):
        child.positive_integer("inner")
    assert reader().child("outer") is None


def test_what_is_required_is_reported_to_be() -> None:
    with pytest.raises(ModelConfigError, match="key: is required"):
        reader().string("key")
    with pytest.raises(ModelConfigError, match="num_hidden_layers: expected at most"):
        reader(num_hidden_layers=MAX_LAYERS + 1).num_layers()


def test_lists_may_be_absent_and_one_id_is_a_list_of_one() -> None:
    assert (reader().strings("k"), reader().counts("k"), reader().token_ids("k")) == ((), (), ())
    assert reader(k=0).token_ids("k") == (0,)
    assert reader(k=[1, 2.5]).positive_numbers("k") == (1.0, 2.5)
