"""Errors of the command line that name what was probably meant."""

from __future__ import annotations

import pytest

from gateway.cli.parsing.command_parser import CommandParser, suggestion


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("polcy", "; did you mean policy?"),
        ("polic", "; did you mean policy?"),
        ("st", "; did you mean stop?"),
        ("serve", "; did you mean gateway?"),
        ("s", ""),
        ("xyzzy", ""),
    ],
)
def test_the_nearest_word_is_suggested_and_nothing_far(word: str, expected: str) -> None:
    assert suggestion(word, ["policy", "gateway", "stop"]) == expected


def test_an_unknown_flag_is_reported_before_a_missing_one(capsys: pytest.CaptureFixture[str]) -> None:
    parser = CommandParser(prog="p")
    parser.add_argument("--reason", required=True)
    with pytest.raises(SystemExit):
        parser.parse_args(["--raeson", "because"])
    assert capsys.readouterr().err.startswith("p: unknown flag --raeson; did you mean --reason?\n")


def test_a_value_after_two_hyphens_and_a_shortened_flag_are_fine() -> None:
    parser = CommandParser(prog="p")
    parser.add_argument("--reason")
    parser.add_argument("file")
    assert parser.parse_args(["--rea=x", "--", "--file"]).file == "--file"
