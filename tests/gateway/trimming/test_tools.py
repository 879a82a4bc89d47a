"""Old tool outputs: capped in bytes, cut between characters, and honest about what is missing."""

from __future__ import annotations

from gateway.trimming.tools import cap_text


def test_a_capped_output_is_measured_in_bytes_and_cut_between_characters() -> None:
    text = "begin " + "é😀x" * 3000 + " end"
    capped = cap_text(text)
    assert len(capped.encode()) <= 2048 + 64
    assert capped.startswith("begin é😀")
    assert capped.endswith(" end")
    assert cap_text(capped) == capped


def test_a_capped_output_reports_how_much_is_missing() -> None:
    text = "a" * 3000 + "z" * 3000
    capped = cap_text(text)
    assert capped.startswith("aaa")
    assert capped.endswith("zzz")
    assert "[3952 characters left out]" in capped
