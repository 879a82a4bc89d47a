"""Equality of answers: requests of every kind with predictions and without, compared whole.

Requests run one to four at once, and share cached prefixes and earlier answers or none. So steps verify draft tokens of
several sequences, beside prompts, and behind blocks that other requests computed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any, Final

from loadtests.clients.completions import complete_chat
from loadtests.clients.http_client import Address, clock
from loadtests.engine.part import Finding, Results, Setting
from loadtests.engine.prediction.varied_requests import KINDS, PREDICTIONS, predicted_text, varied_request
from loadtests.harness.processes import ProcessFailed, Workbench
from loadtests.harness.stack import start_engine

_FEWEST: Final = 3 * len(KINDS)
"""Requests that are compared however little time there is."""
_MOST_TOGETHER: Final = 4


async def measure_equality(setting: Setting) -> Finding:
    """Compare answers with predictions and without until the time is up.

    Raises:
        ProcessFailed: A prediction changed an answer.
    """
    rng, counts = Random(setting.seed), Counter[str]()
    async with Workbench() as bench:
        flags = setting.flags("--speculation", "auto", "--max-num-seqs", str(_MOST_TOGETHER))
        engine = (await start_engine(bench, setting.model, *flags)).address
        kinds = [kind for kind in KINDS if await _is_served(engine, kind)]
        end_at = clock() + setting.seconds
        while counts["requests"] < _FEWEST or clock() < end_at:
            num_together = rng.randint(1, _MOST_TOGETHER)
            bodies = [
                varied_request(kinds[(counts["requests"] + place) % len(kinds)], rng) for place in range(num_together)
            ]
            counts.update(await _compare(engine, bodies, rng))
    results: Results = {f"prediction_equality_{name}": counts[name] for name in ("requests", "accepted", "rejected")}
    note = (
        f"prediction_equality: {counts['requests']} requests of {len(kinds)} kinds, with a prediction and without; "
        f"all choices equal, log probabilities included; of predictions {counts['accepted']} tokens accepted and "
        f"{counts['rejected']} rejected"
    )
    return Finding(results=results, notes=[note])


async def _is_served(engine: Address, kind: str) -> bool:
    """Return whether the model's chat template has what a kind of requests needs, such as tools."""
    try:
        await complete_chat(engine, varied_request(kind, Random(1)), salt=kind)
    except ProcessFailed as error:
        if "unsupported_parameter" in str(error):
            return False
        raise
    return True


async def _compare(engine: Address, bodies: list[dict[str, Any]], rng: Random) -> Counter[str]:
    """Send requests at once without predictions, then with them; return the numbers of what was compared."""
    expected = await asyncio.gather(*(_answer(engine, body, rng) for body in bodies))
    predicting = []
    for body, answer in zip(bodies, expected, strict=True):
        text = predicted_text(rng.choice(PREDICTIONS), _text_of(answer), rng)
        predicting.append({**body, "prediction": {"type": "content", "content": text}})
    found = await asyncio.gather(*(_answer(engine, body, rng) for body in predicting))
    counts = Counter(requests=len(bodies))
    for body, one, other in zip(predicting, expected, found, strict=True):
        if _visible(one) != _visible(other):
            raise ProcessFailed(
                f"a prediction changed an answer: {_visible(other)} in place of {_visible(one)} to {body}"
            )
        details = other["usage"].get("completion_tokens_details") or {}
        counts["accepted"] += details.get("accepted_prediction_tokens", 0)
        counts["rejected"] += details.get("rejected_prediction_tokens", 0)
    return counts


async def _answer(engine: Address, body: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Send one request, with a cache salt of its own or the common one."""
    salt = f"salt-{rng.randrange(1 << 60)}" if rng.random() < 0.5 else "common"
    return await complete_chat(engine, body, salt=salt)


def _text_of(answer: dict[str, Any]) -> str:
    """Return the first choice's text, or what its tool calls say."""
    message = answer["choices"][0]["message"]
    calls = message.get("tool_calls") or ()
    return message.get("content") or "".join(call["function"]["arguments"] for call in calls)


def _visible(answer: dict[str, Any]) -> str:
    """Return all that a client sees of the choices, without the ids of tool calls, which are drawn."""
    choices = json.loads(json.dumps(answer["choices"]))
    for choice in choices:
        for call in choice["message"].get("tool_calls") or ():
            del call["id"]
    return json.dumps([choices, answer["usage"]["completion_tokens"], answer["usage"]["prompt_tokens"]])
