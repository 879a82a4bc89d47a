"""Old turns: dropped whole, oldest first, in steps that leave the cut where it was."""

from __future__ import annotations

from gateway.trimming.conversation import Conversation
from gateway.trimming.turns import from_turn, recent_turns


def talk(num_turns: int, size: int = 100) -> Conversation:
    messages = [{"role": "system", "content": "s" * 50}]
    for _ in range(num_turns):
        messages += [{"role": "user", "content": "u" * size}, {"role": "assistant", "content": "a" * size}]
    return Conversation(messages)


def test_what_fits_stays_whole() -> None:
    conversation = talk(3)
    assert recent_turns(conversation, conversation.num_prompt_bytes) == [*range(7)]
    assert recent_turns(conversation, conversation.num_prompt_bytes - 1) != [*range(7)]


def test_many_short_messages_count_with_their_markup() -> None:
    short = talk(100)
    fitting = recent_turns(short, short.num_bytes)
    assert len(fitting) < len(short.messages)
    assert short.only(fitting).num_prompt_bytes <= short.num_bytes


def test_whole_turns_go_and_the_instructions_and_the_last_turn_stay_whatever_the_budget() -> None:
    conversation = talk(4)
    stored = recent_turns(conversation, 1)
    assert stored == [0, 7, 8]
    assert recent_turns(talk(1), 1) == [0, 1, 2], "there is nothing before the last turn"


def test_the_rest_fits_and_no_turn_is_split() -> None:
    conversation = talk(20)
    for budget in (3900, 2000, 777, 500):
        stored = recent_turns(conversation, budget)
        assert conversation.only(stored).num_bytes <= budget
        assert [index for index in stored if index % 2 == 1] == [
            index - 1 for index in stored if index % 2 == 0 and index
        ]


def test_a_growing_chat_is_cut_in_the_same_place_for_several_turns() -> None:
    starts = [recent_turns(talk(num_turns), 2000)[1] for num_turns in range(12, 40)]
    assert starts == sorted(starts)
    assert len(set(starts)) <= len(starts) // 3, "each cut serves several turns"


def test_instructions_in_the_middle_outlive_their_turn() -> None:
    messages = talk(3).messages
    messages.insert(3, {"role": "developer", "content": "be brief"})
    conversation = Conversation(messages)
    assert from_turn(conversation, conversation.turns()[-1]) == [0, 3, 6, 7]
