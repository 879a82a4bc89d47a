"""A long text keeps whole sentences that bear on the question, whatever stands in them and in any script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.trimming.passages import MIN_PASSAGE_BYTES, extract
from gateway.trimming.structure.sentences import sentences_of

FILLER = " ".join(f"Gate number {n} was painted in a calm colour by the crew." for n in range(60))
ZH_FILLER = "".join(f"第{n}号门由工人刷成了安静的颜色。" for n in range(80))


@given(st.text(alphabet="ab .!?\n\"')3。！？」", max_size=80))
def test_no_character_is_lost_between_sentences(text: str) -> None:
    assert "".join(sentences_of(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It weighs 3.5 kg. See penstock.io!", ["It weighs 3.5 kg. ", "See penstock.io!"]),
        ("Use a tool, e.g. the wrench. Then go.", ["Use a tool, e.g. the wrench. ", "Then go."]),
        ('He said "Stop." She did.', ['He said "Stop." ', "She did."]),
        ("one\n\ntwo", ["one\n\n", "two"]),
        ("门关了。谁来？他说：“好！”走了。", ["门关了。", "谁来？", "他说：“好！”", "走了。"]),
    ],
)
def test_sentences_end_where_readers_see_them_end(text: str, expected: list[str]) -> None:
    assert sentences_of(text) == expected


@pytest.mark.parametrize(
    ("fact", "question"),
    [
        ("The pump weighs 3.5 kg today.", "How much does the pump weigh?"),
        (
            "The manual of the turbine is at docs.example.com/turbine.html for all.",
            "Where is the manual of the turbine?",
        ),
        ("Use grease, e.g. lithium, on the sluice.", "Which grease for the sluice?"),
    ],
)
def test_a_fact_with_dots_in_it_is_left_whole(fact: str, question: str) -> None:
    cut = extract(f"{FILLER} {fact} {FILLER}", question, 300)
    assert fact in cut
    assert len(cut.encode()) <= 300


def test_a_text_without_spaces_between_words_is_cut_by_what_it_states() -> None:
    text = f"{ZH_FILLER}水泵重三点五公斤。{ZH_FILLER}"
    cut = extract(text, "水泵有多重？", 200)
    assert "水泵重三点五公斤。" in cut
    assert len(cut.encode()) <= 200


def test_a_question_in_full_width_is_left_where_it_stands() -> None:
    question = "水泵有多重？"
    cut = extract(f"{ZH_FILLER}水泵重三点五公斤。{ZH_FILLER}\n\n{question}", question, 300)
    assert cut.endswith(question)
    assert "水泵重三点五公斤。" in cut


def test_a_text_that_is_silent_of_the_question_keeps_its_beginning() -> None:
    cut = extract(FILLER, "Zebra?", 300)
    assert cut.startswith("Gate number 0 ")
    assert 0 < len(cut.encode()) <= 300
    assert len(FILLER.encode()) > MIN_PASSAGE_BYTES


def test_a_text_of_which_no_sentence_fits_is_not_emptied() -> None:
    text = ". ".join("x" * 700 for _ in range(4))
    assert extract(text, "What is x?", 100).startswith("...")
