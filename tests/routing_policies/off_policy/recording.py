"""Recorded requests of a route that explores, and the verdicts on their answers."""

from __future__ import annotations

import random

from routing_policies.replay import RecordedRequest, RecordedVerdict

NUM = 6_000
QUALITY = {"small": {1: 0.9, 3: 0.5}, "large": {1: 0.95, 3: 0.95}}


def recorded(
    num: int = NUM, *, ratio: float = 0.2, seed: int = 1
) -> tuple[list[RecordedRequest], list[RecordedVerdict]]:
    """Requests of which `large` answers most; `small` is faster, cheaper, and worse at long conversations."""
    rng = random.Random(seed)
    requests, verdicts = [], []
    for number in range(num):
        choice = "small" if rng.random() < ratio / 2 else "large"
        turns = rng.choice((1, 3))
        requests.append(
            RecordedRequest(
                at=float(number),
                tenant="shop",
                model="auto",
                question=f"{number:08x}",
                id=f"r{number}",
                turns=turns,
                route="main",
                deployment=choice,
                choice=choice,
                propensities={"large": 1.0 - ratio / 2, "small": ratio / 2} if ratio else {"large": 1.0},
                cache="off",
                prompt_tokens=200 if turns == 1 else 2_000,
                output_tokens=100,
                ttft_ms=rng.uniform(80.0, 120.0) * (0.5 if choice == "small" else 1.0),
            )
        )
        if rng.random() > QUALITY[choice][turns]:
            verdicts.append(RecordedVerdict(verdict_of=f"r{number}", tenant="shop", at=number + 0.5, by="feedback"))
    return requests, verdicts
