"""Lines of several processes on one terminal."""

from __future__ import annotations

import io

import pytest

from gateway.cli.supervisor.console import Console, cells, one_line, plain


def test_each_line_stands_behind_its_name() -> None:
    out = io.StringIO()
    console = Console(out)
    console.line("small", "ready")
    console.print_line("up")
    console.block("curl x")
    assert out.getvalue() == "small    | ready\npenstock | up\n\ncurl x\n\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb", "a\\rb"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b", "\\x9b"),
        ("tab\tand\nline é 漢", "tab\tand\nline é 漢"),
    ],
)
def test_control_characters_are_shown_and_have_no_effect(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_no_text_of_a_listing_ends_its_line_or_begins_another_column() -> None:
    found = {"reason": "fine\n    7  forged\tby\u2028anna", "seq": 7, "tags": ["a\rb", None], "é\n": True}
    shown = {"reason": "fine\\n    7  forged\\tby\\u2028anna", "seq": 7, "tags": ["a\\rb", None], "é\\n": True}
    assert cells(found) == shown
    assert one_line("refused:\n  line 3\tbad\n") == "refused:;   line 3\\tbad"


def test_a_terminal_that_is_gone_is_no_error_and_is_not_written_to_again() -> None:
    class Gone(io.StringIO):
        num_tries = 0

        def write(self, text: str) -> int:
            self.num_tries += 1
            raise BrokenPipeError

    out = Gone()
    console = Console(out)
    console.print_line("one")
    console.print_line("two")
    assert out.num_tries == 1
    closed = io.StringIO()
    closed.close()
    Console(closed).print_line("one")
