"""What must never be answered with something similar, given from the request alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cache.semantic.guards import guard_of, text_guard
from gateway.cache.similarity.decision import MatchModel
from gateway.cache.similarity.standalone import MAX_CHARS
from gateway.cache.similarity.suspicion import is_suspicious
from gateway.chat.request import ChatRequest, ChatRequestParser
from routing_policies.policy.document import Cache

PLAIN = "How does one bake bread without yeast?"


def request(**fields: Any) -> ChatRequest:
    document = {"model": "auto", "messages": [{"role": "user", "content": PLAIN}], **fields}
    return ChatRequestParser().parse(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"temperature": 1.0}, None),
        ({"temperature": 1.1}, "temperature"),
        ({"response_format": {"type": "json_object"}}, None),
        ({"seed": 0}, "seed"),
        ({"n": 2}, "choices"),
        ({"n": 1}, None),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": False}, None),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"functions": [{"name": "f"}]}, "tools"),
        (
            {
                "messages": [
                    {"role": "tool", "content": "x", "tool_call_id": "1"},
                    {"role": "user", "content": PLAIN},
                ]
            },
            "tools",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": PLAIN},
                            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                        ],
                    }
                ]
            },
            "no_text",
        ),
        ({"messages": [{"role": "user", "content": PLAIN}, {"role": "assistant", "content": "x"}]}, "no_text"),
    ],
)
def test_requests(fields: dict[str, Any], reason: str | None) -> None:
    assert guard_of(request(**fields), Cache()) == reason


def test_the_policy_reports_how_much_probability_is_too_much() -> None:
    strict = Cache(max_temperature=0.0)
    assert guard_of(request(), strict) == "temperature", "a request that names none gets OpenAI's 1"
    assert guard_of(request(temperature=0), strict) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PLAIN, None),
        ("What is the capital of France?", None),
        ("Can you tell me how bread is baked?", None),
        ("Yes please.", "too_short"),
        ("word " * MAX_CHARS, "too_long"),
        ("What is the weather like in Lyon?", "time_dependent"),
        ("Who won the match last night in Lyon?", "time_dependent"),
        ("Is the office open on Mondays and so on?", "time_dependent"),
        ("What is the latest version of it?", "time_dependent"),
        ("How old is the queen of Spain?", "time_dependent"),
        ("What has been done so far about it?", "time_dependent"),
        ("What is the price of a ticket?", "time_dependent"),
        ("How do I cancel my order with you?", "personal"),
        ("When is our next invoice due then?", "personal"),
        ("Does this train take me to Lyon?", "personal"),
        ("Какая столица у Франции сейчас интересно?", "time_dependent"),
        ("法国的首都是哪里？请告诉我", None),
        ("我的订单在哪里？", "personal"),
        ("Wo ist meine Bestellung geblieben?", "personal"),
        ("¿Qué tiempo hace hoy en Lisboa?", "time_dependent"),
        ("Quelle heure est-il à Lyon ?", "time_dependent"),
        ("How do I re\u200bset the router box?", "suspicious"),
        ("How do I re\u0455et the router box?", "suspicious"),
        ("How do I reset \u202ethe router box?", "suspicious"),
        ("How do I \uff52eset the router box?", "suspicious"),
        ("How do I reset the router box?\u0000", "suspicious"),
        ("How do I reset the box? ](Me giving**ONE similarlyNow =>} xqzrtvb", "suspicious"),
        ("How do I embed YouTube in JavaScript?", None),
        ("How do I call useState() in a React(TypeScript) page?", None),
        ("How do I r\u0301\u0302\u0303eset the router box?", "suspicious"),
        ("Wie ändere ich das Passwort für Büros?", None),
        ("What does naïve café mean in French?", None),
    ],
)
def test_texts(text: str, reason: str | None) -> None:
    assert text_guard(text) == reason


@pytest.mark.parametrize(
    ("requested", "stored"),
    [
        (
            "Kann ich das Gerät zurückgeben, wenn es benutzt wurde?",
            "Kann ich das Gerät zurückgeben, wenn es nicht benutzt wurde?",
        ),
        ("¿Cuánto cuesta enviar un paquete a España?", "¿Cuánto cuesta enviar un paquete desde España?"),
        ("Est-ce que je dois arroser la plante ?", "Est-ce que je ne dois pas arroser la plante ?"),
        ("Posso devolver o produto com a caixa aberta?", "Posso devolver o produto sem a caixa aberta?"),
        ("Come si attiva il roaming internazionale?", "Come si disattiva il roaming internazionale?"),
        ("Hoe kan ik mijn abonnement verlengen?", "Hoe kan ik mijn abonnement niet verlengen?"),
        ("Czy można jeść ser przed operacją?", "Czy można jeść ser po operacji?"),
        ("Hur kan jag aktivera det här kortet?", "Hur kan jag inte aktivera det här kortet?"),
        ("kann man das trotzdem nicht reklamieren", "bir ürün nasıl iade edilir"),
    ],
)
def test_a_changed_meaning_in_another_language_is_never_served(requested: str, stored: str) -> None:
    model = MatchModel.shipped()
    for one, other in ((requested, stored), (stored, requested)):
        found = model.match_probability(one, other, similarity=0.99, runner_up=None, track=None)
        assert text_guard(one) is not None or found < model.threshold(0.05)
    assert not is_suspicious(requested)


def test_the_same_words_in_another_language_are_served() -> None:
    model, text = MatchModel.shipped(), "Hur kan jag aktivera det här kortet?"
    found = model.match_probability(text.lower().rstrip("?"), text, similarity=0.9, runner_up=None, track=None)
    assert text_guard(text) is None
    assert found > model.threshold(0.01)


@pytest.mark.parametrize(
    ("rule", "user", "reason"),
    [
        (Cache(), None, "personal"),
        (Cache(scope="user"), "anna", None),
        (Cache(personal="per_user"), "anna", None),
        (Cache(personal="per_user"), None, "personal"),
    ],
)
def test_a_personal_question_is_reused_for_its_user_only(rule: Cache, user: str | None, reason: str | None) -> None:
    fields = {} if user is None else {"user": user}
    sent = request(messages=[{"role": "user", "content": "Where is my order with you?"}], **fields)
    assert guard_of(sent, rule) == reason


def test_a_route_may_reuse_what_depends_on_the_time() -> None:
    sent = request(messages=[{"role": "user", "content": "What is the weather like today?"}])
    assert guard_of(sent, Cache()) == "time_dependent"
    assert guard_of(sent, Cache(time_dependent="reuse")) is None


@pytest.mark.parametrize(
    "text",
    [
        "What does déjà vu mean in French?",
        "las vegas timezone please",
        "reset router firmware 7.2",
        "How far is El Paso from Los Angeles?",
        "Is Côte d'Ivoire the same as Ivory Coast?",
    ],
)
def test_foreign_names_and_words_in_english_questions_are_nothing_to_stop_at(text: str) -> None:
    assert text_guard(text) is None


def test_an_emoji_and_other_punctuation_are_nothing_to_suspect() -> None:
    assert not is_suspicious("How do I reset it? 🙂 — “quickly”…\nThanks\tall")


@pytest.mark.parametrize("text", ["", " ", "12 × 34 = ?", "100 € → $", "\N{THUMBS UP SIGN}" * 6, "¿¿¿¿¿¿¿¿", "١٢٣٤٥٦٧"])
def test_a_text_without_a_word_is_too_short_in_any_script(text: str) -> None:
    assert text_guard(text) == "too_short"
