"""Old tool outputs: capped in bytes, and cut where their structure ends."""

from __future__ import annotations

import json

from gateway.trimming.tools import cap_text


def test_a_capped_output_is_measured_in_bytes_and_cut_between_characters() -> None:
    text = "begin " + "é😀x" * 3000 + " end"
    capped = cap_text(text)
    assert len(capped.encode()) <= 2048 + 64
    assert capped.startswith("begin é😀")
    assert capped.endswith(" end")
    assert cap_text(capped) == capped


def test_a_capped_output_marks_its_gap() -> None:
    text = "a" * 3000 + "z" * 3000
    capped = cap_text(text)
    assert capped.startswith("aaa")
    assert capped.endswith("zzz")
    assert "..." in capped


def test_a_capped_document_stays_one() -> None:
    text = json.dumps([{"id": number, "name": f"row {number}", "note": "x" * 30} for number in range(200)], indent=1)
    capped = json.loads(cap_text(text))
    assert capped[0]["id"] == 0
    assert capped[-1]["id"] == 199
    assert any(isinstance(row, str) and "left out" in row for row in capped)
