"""A conversation over its budget keeps what the question needs, wherever it stands, and never what instructs less."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from gateway.chat.request import ChatRequestParser
from gateway.trimming.conversation import Conversation
from gateway.trimming.trimmer import PolicyTrimmer
from routing_policies.policy.document import Trim
from routing_policies.policy.values import TrimStrategy

DEFAULT: tuple[TrimStrategy, ...] = ("drop_old_turns", "extract_passages")
FACT = "The door code of the Oslo office is XY-1234."
QUESTION = "What is the door code of the Oslo office?"
Messages = list[dict[str, Any]]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def document(num_bytes: int = 29_000, *facts: str, seed: int = 1) -> str:
    rng = Random(seed)
    topics = ["budget", "office", "release", "supplier", "survey", "travel", "intranet", "audit"]
    lines = [f"Anna: We talked about the {rng.choice(topics)} of {rng.randint(1, 99)} people. It is fine, I think.\n"]
    while sum(map(len, lines)) < num_bytes:
        lines.append(
            f"Boris: The {rng.choice(topics)} was moved to week {rng.randint(1, 50)}. Nobody minds that much.\n"
        )
    for fact in facts:
        lines.insert(rng.randint(1, len(lines)), f"Carla: {fact} That is all.\n")
    return "".join(lines)


def sent(messages: Messages, tokens: int, *strategies: TrimStrategy, **fields: Any) -> Messages:
    body = json.dumps({"model": "auto", "messages": messages, **fields}).encode()
    rule = Trim(budget_tokens=tokens, strategies=strategies or DEFAULT)
    found: Messages = PolicyTrimmer().trim(ChatRequestParser().parse(body), rule).request.document["messages"]
    return found


CASES = {
    "after": [user(f"{document(29_000, FACT)}\n{QUESTION}")],
    "before": [user(f"{QUESTION}\n\n{document(29_000, FACT)}")],
    "in a later turn": [user(f"Read this.\n\n{document(29_000, FACT)}"), answer("Done."), user(QUESTION)],
    "in the next user message": [user(document(29_000, FACT)), user(QUESTION)],
    "many turns later": [
        user(document(29_000, FACT)),
        answer("Done."),
        *(part for number in range(8) for part in (user(f"Thanks {number}."), answer("You are welcome."))),
        user(QUESTION),
    ],
}


@pytest.mark.parametrize("messages", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("share", [0.1, 0.3, 0.7])
def test_the_answer_stays_and_the_budget_is_filled(messages: Messages, share: float) -> None:
    budget = int(Conversation(messages).num_prompt_bytes * share)
    after = Conversation(sent(messages, budget // 4))
    text = json.dumps(after.messages)
    assert FACT in text
    assert QUESTION in text
    assert 0.9 * budget < after.num_prompt_bytes <= budget
    assert [message["role"] for message in after.messages] == [message["role"] for message in messages]


@pytest.mark.parametrize("tokens", [300, 1500, 5600])
@pytest.mark.parametrize(
    ("order", "closing"),
    [
        ("Summarize the following meeting in French.", "Is that clear?"),
        ("请用中文总结以下会议。", "明白了吗？"),
        ("Xorlo begripla fundo trevi.", "Plo miska tun."),
    ],
    ids=["English", "Chinese", "a language nobody knows"],
)
def test_instructions_around_a_text_stay_at_every_budget(tokens: int, order: str, closing: str) -> None:
    text = document(31_000)
    after = sent([user(f"{order}\n\n{text}\n{closing}")], tokens)[0]["content"]
    assert after.startswith(f"{order}\n\n")
    assert after.endswith(f"\n{closing}")
    earlier = sent([user(f"{order}\n\n{text}"), answer("Yes."), user(closing)], tokens)
    assert earlier[0]["content"].startswith(f"{order}\n\n")


def test_an_instruction_on_a_line_of_its_own_within_a_text_stays() -> None:
    order = "Please answer with a single number."
    text = f"{document(9000, seed=2)}\n{order}\n\n{document(9000, seed=3)}\nHow many?"
    assert order in sent([user(text)], 700)[0]["content"]


def test_system_text_is_never_cut() -> None:
    system = {"role": "system", "content": document(6000)}
    after = sent([system, user(f"{document(9000)}\n{QUESTION}")], 200)
    assert after[0] == system


def test_short_parts_of_a_message_stay_beside_a_long_one() -> None:
    parts = [{"type": "text", "text": document(9000, FACT)}, {"type": "text", "text": QUESTION}]
    after = sent([{"role": "user", "content": parts}], 600)[0]["content"]
    assert after[1] == parts[1]
    assert FACT in after[0]["text"]
    assert len(after[0]["text"]) < 2400


def test_a_turn_that_the_question_refers_to_comes_back() -> None:
    chat = [part for n in range(40) for part in (user(f"Question {n}: {'what now ' * 20}"), answer("Well. " * 30))]
    messages = [user("My sister Petra cannot eat walnuts."), answer("Noted."), *chat]
    after = sent([*messages, user("Which nuts can my sister Petra not eat?")], 1500)
    assert after[0] == messages[0]
    assert after[1] == messages[1], "turns stay whole"
    assert sent([*messages, user("And now?")], 1500)[0] != messages[0]


def test_results_of_tools_are_cut_by_their_structure_and_stay_with_their_calls() -> None:
    rows = json.dumps([{"id": number, "city": f"Town {number}", "note": "x" * 40} for number in range(300)])
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"q": "towns"}'}}
    messages: Messages = [
        user("Look up the towns."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": rows},
        answer("I have them."),
        user("What is the id of Town 217?"),
    ]
    after = sent(messages, 700)
    assert after[1] == messages[1]
    assert any(row["id"] == 217 for row in json.loads(after[2]["content"]) if isinstance(row, dict))
    running = sent(messages[:3], 700)
    assert json.loads(running[2]["content"]), "within the last turn, too"


def test_what_a_response_format_needs_stays() -> None:
    text = document(9000, "The invoice total came to 81 euros.")
    messages = [user(f"{text[:4000]}\nAll keys of the JSON are in lower case.\n{text[4000:]}\nThank you very much.")]
    schema = {"type": "object", "properties": {"invoice_total": {"type": "number"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    after = sent(messages, 500, response_format=wanted)[0]["content"]
    assert "All keys of the JSON are in lower case." in after
    assert "The invoice total came to 81 euros." in after


LANGUAGES = {
    "German": ("Der Pförtner heißt Ulrich Brandt.", "Wie heißt der Pförtner?", "Das Wetter war an Tag {n} trüb. "),
    "Russian": ("Сторожа зовут Пётр Ильич.", "Как зовут сторожа?", "Погода в день {n} была серой. "),
    "Chinese": ("门卫的名字叫王小明。", "门卫叫什么名字？", "第{n}天的天气很阴沉。"),
    "Japanese": ("守衛の名前は佐藤です。", "守衛の名前は何ですか？", "{n}日目の天気は曇りでした。"),
    "Arabic": ("اسم الحارس هو كريم.", "ما اسم الحارس؟", "كان الطقس في اليوم {n} غائما. "),
    "Hindi": ("चौकीदार का नाम मोहन है।", "चौकीदार का नाम क्या है?", "दिन {n} का मौसम ठीक था। "),
    "Thai": ("ยามชื่อสมชาย", "ยามชื่ออะไร", "วันที่ {n} อากาศครึ้มมาก\n"),
    "Korean": ("경비원의 이름은 김민수입니다.", "경비원의 이름은 무엇입니까?", "{n}일째 날씨는 흐렸습니다. "),
}


@pytest.mark.parametrize(("fact", "question", "filler"), LANGUAGES.values(), ids=LANGUAGES.keys())
def test_the_answer_stays_in_any_language(fact: str, question: str, filler: str) -> None:
    sentences = [filler.format(n=number) for number in range(300)]
    text = "".join([*sentences[:120], fact, "\n" if "\n" in filler else " ", *sentences[120:]])
    tokens = len(text.encode()) // 20
    for messages in ([user(f"{text}\n\n{question}")], [user(text), answer("…"), user(question)]):
        after = sent(messages, tokens)
        assert fact in after[0]["content"]
        assert question in after[-1]["content"]


@pytest.mark.parametrize("tokens", [300, 900])
def test_short_code_at_the_end_of_the_last_message_stays(tokens: int) -> None:
    code = "```python\ndef add(x, y):\n    return x - y\n```"
    assert sent([user(f"{QUESTION}\n\n{document(9000)}\n\n{code}")], tokens)[0]["content"].endswith(code)


def test_a_question_behind_a_fence_without_an_end_stays() -> None:
    text = f"Look at this:\n\n```\n{document(6000, FACT)}\n\n{QUESTION}"
    after = sent([user(text)], 500)[0]["content"]
    assert after.endswith(QUESTION)
    assert FACT in after


def looked_up(number: int, result: str) -> Messages:
    """Return a tool call and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]


OUTPUTS: tuple[TrimStrategy, ...] = ("dedupe", "cap_tool_outputs", "drop_old_turns", "extract_passages")


@pytest.mark.parametrize("tokens", [1000, 3000, 5600])
@pytest.mark.parametrize("num_turns", [0, 3])
def test_what_a_tool_found_before_is_selected_by_the_question(tokens: int, num_turns: int) -> None:
    between = [part for number in range(num_turns) for part in (user(f"Thanks {number}."), answer("Sure."))]
    messages = [user("Look it up."), *looked_up(1, document(29_000, FACT)), answer("Done."), *between, user(QUESTION)]
    after = sent(messages, tokens, *OUTPUTS)
    assert FACT in json.dumps(after)
    assert after[1:2] == messages[1:2], "the call stays with its result"


def test_a_growing_chat_with_tools_keeps_its_beginning() -> None:
    messages, before = [{"role": "system", "content": "You are an agent."}], Messages()
    num_new = num_all = 0
    for number in range(24):
        messages += [user(f"Go on with file {number}."), *looked_up(number, document(4000, seed=number))]
        after = sent(messages, 8000, *OUTPUTS)
        assert Conversation(after).num_prompt_bytes <= 32_000
        common = next((place for place, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
        num_new += len(after) - common
        num_all += len(after)
        before = after
        messages.append(answer(f"File {number} is read."))
    assert num_new < num_all / 2


@pytest.mark.parametrize("tokens", [900, 2500])
def test_an_earlier_turn_that_instructs_for_all_that_follows_stays(tokens: int) -> None:
    order = user("From now on, answer in Spanish and never mention prices.")
    chat = [part for n in range(60) for part in (user(f"Part {n}: {'what now ' * 20}"), answer("Well. " * 30))]
    after = sent([order, answer("Understood."), *chat, user("And now?")], tokens)
    assert after[:2] == [order, answer("Understood.")]
    assert Conversation(after).num_prompt_bytes <= 4 * tokens
    assert sent([order, answer("Understood."), *chat, user("And now?")], tokens, "drop_old_turns")[0] == order


def test_a_question_in_the_middle_of_a_text_selects_its_passages() -> None:
    order = "Answer in one short sentence."
    text = f"{order}\n\n{document(9000, seed=2)}\n{QUESTION}\n\n{document(9000, FACT, seed=3)}\nThanks in advance!"
    after = sent([user(text)], 700)[0]["content"]
    for part in (order, QUESTION, FACT):
        assert part in after
