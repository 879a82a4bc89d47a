"""Generator of last user messages that hold one question or instruction among a long text of another kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

ORDERS: Final[dict[str, tuple[str, ...]]] = {
    "English": (
        "Rewrite the query above so that it uses a join.",
        "Summarize the decision about the {t} in one line.",
        "Translate the part about the {t} into French.",
        "Explain why the {t} was late.",
        "Please answer with a single word about the {t}.",
        "Find the error in the part about the {t}.",
        "Do not mention the {t} in your answer.",
        "What happened to the {t} in the end?",
        "List all the names that stand next to the {t}.",
        "I want you to compare the {t} with last year.",
        "Can you tell me who moved the {t}?",
        "Fix the bug that the {t} causes.",
        "Use only the numbers of the {t}.",
    ),
    "German": (
        "Fasse den Abschnitt über den {t} zusammen.",
        "Bitte antworte kurz zum {t}.",
        "Was geschah mit dem {t}?",
        "Übersetze alles über den {t} ins Englische.",
    ),
    "French": (
        "Résumez la partie sur le {t}.",
        "Qu'est-il arrivé au {t} ?",
        "Veuillez traduire la partie sur le {t}.",
    ),
    "Spanish": (
        "Resume la parte sobre el {t}.",
        "¿Qué pasó con el {t}?",
        "Por favor, explica el {t}.",
    ),
    "Italian": (
        "Riassumi la parte sul {t}.",
        "Perché il {t} era in ritardo?",
    ),
    "Russian": ("Переведи часть про {t} на английский.", "Что случилось с {t}?"),
    "Chinese": ("请总结关于{t}的部分。", "{t}怎么样了？", "把关于{t}的部分翻译成英文。"),
    "Japanese": ("{t}の部分を要約してください。", "{t}はどうなりましたか。"),
    "Korean": ("{t} 부분을 요약해 주세요.", "{t}은 어떻게 되었나요?"),
    "Arabic": ("لخص الجزء عن {t}.", "ماذا حدث مع {t}؟"),
}
"""Sentences by language; `{t}` stands for what they are about."""
_TOPICS: Final = ("budget", "bridge", "survey", "warehouse", "ferry", "contract", "invoice", "release")
_REMARKS: Final = ("", "-- TODO: rewrite this later\n")

Place = Callable[[Random, str], str]


class OrderCase(NamedTuple):
    """A last user message and the sentence of it that must stay."""

    kind: str
    text: str
    order: str


def order_cases(seed: int, count: int) -> list[OrderCase]:
    """Return cases by turns over all places and languages."""
    rng = Random(seed)
    cases: list[OrderCase] = []
    languages = [*ORDERS]
    for number in range(count):
        name = [*PLACES][number % len(PLACES)]
        language = languages[number // len(PLACES) % len(languages)] if rng.random() < 0.6 else "English"
        order = rng.choice(ORDERS[language]).format(t=rng.choice(_TOPICS))
        cases.append(OrderCase(f"{name}, {language}", PLACES[name](rng, order), order))
    return cases


def prose(rng: Random, num_sentences: int = 60) -> str:
    """Return paragraphs of statements."""
    sentences = [
        f"The {rng.choice(_TOPICS)} number {rng.randint(1, 999)} was {rng.choice(('blue', 'late', 'new', 'sold'))} "
        f"in week {rng.randint(1, 52)}."
        for _ in range(num_sentences)
    ]
    return "\n\n".join(" ".join(sentences[n : n + 5]) for n in range(0, num_sentences, 5))


def sql(rng: Random, count: int = 16) -> str:
    """Return statements in SQL."""
    return "".join(
        f"SELECT id, name, t{rng.randint(1, 99)}\nFROM orders_{rng.randint(1, 99)}\nWHERE total > {rng.randint(1, 999)}"
        f"\nORDER BY id;\n{rng.choice(_REMARKS)}\n"
        for _ in range(count)
    )


def python(rng: Random, count: int = 16) -> str:
    """Return functions in Python."""
    return "import os\n\n\n" + "\n\n".join(
        f'def f{n}(x):\n    """Return the total."""\n    y = x + {rng.randint(1, 99)}\n    return y * {n}\n'
        for n in range(count)
    )


def javascript(rng: Random, count: int = 16) -> str:
    """Return functions in JavaScript."""
    return "\n".join(
        f"function f{n}(x) {{\n  const y = x + {rng.randint(1, 99)}; // keep it\n  return y * {n};\n}}\n"
        for n in range(count)
    )


def rows(rng: Random, count: int = 60) -> list[str]:
    """Return rows of a table."""
    return [f"| {n} | {rng.choice(_TOPICS)} | {rng.randint(1, 999)} |" for n in range(count)]


def _between(rng: Random, pieces: list[str], piece: str, joint: str) -> str:
    place = rng.randint(1, len(pieces) - 1)
    return joint.join([*pieces[:place], piece, *pieces[place:]])


def _within_prose(rng: Random, order: str) -> str:
    paragraphs = prose(rng).split("\n\n")
    place = rng.randint(1, len(paragraphs) - 2)
    sentences = paragraphs[place].split(". ")
    paragraphs[place] = f"{sentences[0]}. {order} {'. '.join(sentences[1:])}"
    return "\n\n".join(paragraphs)


def _code(rng: Random) -> tuple[str, str]:
    return rng.choice((("sql", sql(rng)), ("python", python(rng)), ("javascript", javascript(rng))))


def _fence(rng: Random) -> str:
    language, body = _code(rng)
    return f"```{rng.choice((language, ''))}\n{body}```"


def _comment(rng: Random, order: str) -> str:
    language, body = _code(rng)
    mark = {"sql": "--", "python": "#", "javascript": "//"}[language]
    statements = body.split("\n\n")
    place = rng.randint(1, len(statements) - 2)
    statements.insert(place, f"{mark} {order}")
    body = "\n\n".join(statements)
    return f"```{language}\n{body}```" if rng.random() < 0.5 else body


def _in_json(rng: Random, order: str) -> str:
    items = [{"id": n, "note": f"The {rng.choice(_TOPICS)} was {rng.randint(1, 99)} days late"} for n in range(60)]
    value = {"items": items[:30], "task": order, "more": items[30:]}
    return json.dumps(value, ensure_ascii=False, indent=rng.choice((None, 2)))


def _in_markup(rng: Random, order: str) -> str:
    name = rng.choice(("instruction", "task", "question"))
    texts = prose(rng, 60).split("\n\n")
    return _between(rng, [f"<document>\n{text}\n</document>" for text in texts], f"<{name}>{order}</{name}>", "\n")


PLACES: Final[dict[str, Place]] = {
    "before prose": lambda rng, order: f"{order}\n\n{prose(rng)}",
    "after prose": lambda rng, order: f"{prose(rng)}\n\n{order}",
    "between paragraphs": lambda rng, order: _between(rng, prose(rng).split("\n\n"), order, "\n\n"),
    "within a paragraph": _within_prose,
    "after a fence": lambda rng, order: f"{_fence(rng)}\n{order}\n\n{prose(rng, 20)}\n\nThanks a lot.",
    "before a fence": lambda rng, order: f"Hello there.\n\n{prose(rng, 20)}\n\n{order}\n{_fence(rng)}\n\nThanks a lot.",
    "between fences": lambda rng, order: f"{_fence(rng)}\n\n{order}\n\n{_fence(rng)}",
    "after code": lambda rng, order: f"{_code(rng)[1]}\n{order}",
    "before code": lambda rng, order: f"{order}\n\n{_code(rng)[1]}",
    "between code": lambda rng, order: f"{_code(rng)[1]}\n{order}\n\n{_code(rng)[1]}",
    "right behind code": lambda rng, order: f"{_code(rng)[1].rstrip()}\n{order}\n\n{_code(rng)[1]}",
    "in a fence of prose": lambda rng, order: (
        f"Look.\n\n```{rng.choice(('', 'text', 'md'))}\n"
        + _between(rng, prose(rng).split("\n\n"), order, "\n\n")
        + "\n```\n\nThanks a lot."
    ),
    "in a fence of code": lambda rng, order: (
        f"Look.\n\n```sql\n{_between(rng, sql(rng).split(chr(10) * 2), order, chr(10) * 2)}```\n\nThanks a lot."
    ),
    "in a quotation": lambda rng, order: (
        f"{prose(rng, 30)}\n\n> It was said before.\n> {order}\n> That is all.\n\n{prose(rng, 30)}"
    ),
    "in a list": lambda rng, order: (
        "Some points.\n\n"
        + _between(rng, [f"- {text}" for text in prose(rng).replace("\n\n", " ").split(". ")], f"- {order}", "\n")
    ),
    "in a numbered list": lambda rng, order: (
        "Some points.\n\n"
        + _between(rng, [f"{n}. {text}" for n, text in enumerate(prose(rng).split(". "))], f"7. {order}", "\n")
    ),
    "in a table": lambda rng, order: (
        "The rows.\n\n| n | what | sum |\n|---|---|---|\n" + _between(rng, rows(rng), f"| 7 | {order} | 3 |", "\n")
    ),
    "between tables": lambda rng, order: (
        "| n | what | sum |\n|---|---|---|\n"
        + "\n".join(rows(rng))
        + f"\n\n{order}\n\n| n | what | sum |\n|---|---|---|\n"
        + "\n".join(rows(rng))
    ),
    "in a comment": _comment,
    "in a heading": lambda rng, order: _between(rng, prose(rng).split("\n\n"), f"## {order}", "\n\n"),
    "in JSON": _in_json,
    "in markup": _in_markup,
    "behind a label": lambda rng, order: _between(
        rng, prose(rng).split("\n\n"), f"{rng.choice(('Question', 'P.S.', 'Note', 'Task 2'))}: {order}", "\n\n"
    ),
    "in bold": lambda rng, order: _between(rng, prose(rng).split("\n\n"), f"**{order}**", "\n\n"),
}
