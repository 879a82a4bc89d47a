"""Same words, everything else different: requests whose answers must not be mixed up, and a check that they are not.

The upstream answers every combination of tenant, model, instructions, history and parameters with a text of a length of
its own. A hit is wrong when its text has another length, or when nobody had sent this very thing before.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from loadtests.cache.similar import NUM_WORDINGS, questions
from loadtests.clients.http_client import Address, LoadConnection, request_bytes

_CONNECTIONS = 16
_NUM_TEXTS = 100
_CHUNK_CHARS = 16
_USUAL_SHARE = 0.7
_LENGTHS = 197
"""A prime: neighbouring combinations get different lengths. The upstream words 256 scripts without effort."""

EXACT_MODELS = ("one", "two")
SIMILAR_MODELS = ("similar-one", "similar-two")
_SLOW_MS = 100
"""Of the upstream where similar questions may be answered from the cache: a lookup takes less."""
_SYSTEMS = (None, "Answer briefly.", "Answer briefly!", "You speak for the shop.")
_HISTORIES: tuple[tuple[str, ...], ...] = (
    (),
    ("Tell me of the red lamp.", "Gladly."),
    ("Tell me of the desk.", "Gladly."),
)
_PARAMETERS: tuple[dict[str, object], ...] = (
    {},
    {"temperature": 0.5},
    {"max_tokens": 20},
    {"max_tokens": 21},
    {"seed": 1},
    {"stop": ["."]},
    {"response_format": {"type": "json_object"}},
    {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]},
)


@dataclass(slots=True)
class ScopeResult:
    """What came of it."""

    num_lookups: int = 0
    num_hits: int = 0
    num_similar: int = 0
    """Of the hits, those of other words."""
    num_wrong: int = 0
    num_failed: int = 0
    first_wrong: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """One combination; the numbers index the tuples above."""

    tenant: str
    model: int
    system: int
    history: int
    parameters: int
    text: int
    wording: int
    is_similar: bool

    @property
    def scope_key(self) -> tuple[object, ...]:
        """Equal for the same question in other words."""
        return self.tenant, self.model, self.system, self.history, self.parameters, self.text, self.is_similar

    @property
    def num_chunks(self) -> int:
        """Length of its answer."""
        return 1 + hash(self.scope_key) % _LENGTHS

    def body(self) -> bytes:
        """The request; `user` is a script for the upstream that the cache ignores."""
        system, history = _SYSTEMS[self.system], _HISTORIES[self.history]
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages += [
            {"role": role, "content": text} for role, text in zip(("user", "assistant"), history, strict=False)
        ]
        text = questions(self.wording)[self.text] if self.is_similar else f"And where is number {self.text} of them?"
        messages.append({"role": "user", "content": text})
        models, slow = (SIMILAR_MODELS, f",first_byte_ms={_SLOW_MS}") if self.is_similar else (EXACT_MODELS, "")
        return json.dumps(
            {
                "model": models[self.model],
                "messages": messages,
                "user": f"script:num_chunks={self.num_chunks},chunk_chars={_CHUNK_CHARS}{slow}",
                **_PARAMETERS[self.parameters],
            }
        ).encode()


async def run_scopes(
    address: Address, secrets: Mapping[str, str], num_lookups: int, rng: Random, *, is_similar: bool = False
) -> ScopeResult:
    """Send so many questions, the frequent ones often, each checked. `secrets` are the tenants' keys; with `is_similar`
    on the routes whose answers similar questions may get, in several wordings."""
    result, upstream_cases = ScopeResult(), Counter[tuple[object, ...]]()
    names = list(secrets)

    async def send_some() -> None:
        connection = await LoadConnection.open(address, keep_body=True)
        while result.num_lookups < num_lookups:
            result.num_lookups += 1
            question = _drawn(rng, names, is_similar=is_similar)
            upstream_cases[question.scope_key] += 1
            headers = (("authorization", f"Bearer {secrets[question.tenant]}"),)
            exchange = await connection.exchange(
                request_bytes("POST", "/v1/chat/completions", question.body(), headers)
            )
            if not exchange.is_ok:
                result.num_failed += 1
            else:
                _check_hit(result, question, connection, is_first=upstream_cases[question.scope_key] == 1)
            if not connection.is_open:
                connection = await LoadConnection.open(address, keep_body=True)
        connection.close()

    await asyncio.gather(*(send_some() for _ in range(_CONNECTIONS)))
    return result


def _drawn(rng: Random, tenants: list[str], *, is_similar: bool) -> Question:
    """Similar ones are drawn from few scopes most of the time: only what comes again in other words can be hit."""

    def drawn(count: int) -> int:
        return 0 if is_similar and rng.random() < _USUAL_SHARE else rng.randrange(count)

    num_texts = len(questions(0)) if is_similar else _NUM_TEXTS
    return Question(
        tenants[drawn(len(tenants))],
        drawn(len(EXACT_MODELS)),
        drawn(len(_SYSTEMS)),
        drawn(len(_HISTORIES)),
        drawn(len(_PARAMETERS)),
        int(num_texts ** rng.random()) - 1,
        rng.randrange(NUM_WORDINGS) if is_similar else 0,
        is_similar,
    )


def _check_hit(result: ScopeResult, question: Question, connection: LoadConnection, *, is_first: bool) -> None:
    """`is_first`: nobody else has sent it until now. Whoever sends at the same time may be answered first."""
    is_similar = b"\r\nx-penstock-cache: hit-semantic" in connection.scanner.head
    is_hit = is_similar or b"\r\nx-penstock-cache: hit-exact" in connection.scanner.head
    result.num_hits += is_hit
    result.num_similar += is_similar
    answer = json.loads(connection.scanner.content)["choices"][0]["message"]["content"]
    is_other = len(answer) != question.num_chunks * _CHUNK_CHARS
    if is_other or (is_hit and is_first):
        result.num_wrong += 1
        why = f"an answer of {len(answer)} characters" if is_other else "a hit before anybody had asked"
        result.first_wrong = result.first_wrong or f"{why} for {question!r}"
