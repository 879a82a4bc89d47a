"""Price: estimated cost of one request at a deployment, in tokens, before it is answered."""

from __future__ import annotations

from typing import Final

import msgspec

from routing_policies.policy.document import CostPerMtok

OUTPUT_WEIGHT: Final = 2.0
"""Work of one generated token in prompt tokens; a step computes many prompt tokens but one output token a sequence."""


class Price(msgspec.Struct, frozen=True, gc=False):
    """Estimates of a request's tokens; the gateway does not tokenise, and the answer's length is unknown."""

    prompt_tokens: int
    uncached_tokens: int
    """Prompt tokens that no deployment is expected to hold keys and values of, at least 1."""
    output_tokens: int
    """Forecast over all choices, never above the client's limit."""

    @property
    def work_tokens(self) -> int:
        """Uncached prompt plus weighted output; the unit of fair shares and adaptive limits."""
        return self.uncached_tokens + int(OUTPUT_WEIGHT * self.output_tokens)

    @property
    def total_tokens(self) -> int:
        """Prompt plus output, unweighted; the unit of quotas."""
        return self.prompt_tokens + self.output_tokens


def cost_of(rates: CostPerMtok | None, price: Price) -> float | None:
    """Return the cost of the request at these rates, in the operator's currency; None without rates."""
    if rates is None:
        return None
    return (rates.prompt * price.prompt_tokens + rates.completion * price.output_tokens) / 1e6
