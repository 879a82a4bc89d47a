"""Price: what one request will cost a deployment, in tokens, as far as it can be known before it was answered."""

from __future__ import annotations

from typing import Final

import msgspec

from routing_policies.policy.document import CostPerMtok

OUTPUT_WEIGHT: Final = 2.0
"""Work of one generated token, in prompt tokens: a prompt is read many tokens at a time, an answer is not."""


class Price(msgspec.Struct, frozen=True, gc=False):
    """Estimates, all of them: the gateway does not tokenise, and nobody knows how long an answer will be."""

    prompt_tokens: int
    uncached_tokens: int
    """Of the prompt, what no deployment is believed to hold keys and values of; at least 1."""
    output_tokens: int
    """Forecast over all choices, never above what the client allows."""

    @property
    def work_tokens(self) -> int:
        """Uncached prompt and weighted output: what shares between tenants and adaptive limits are counted in."""
        return self.uncached_tokens + int(OUTPUT_WEIGHT * self.output_tokens)

    @property
    def total_tokens(self) -> int:
        """Prompt and output, unweighted: what quotas are counted in."""
        return self.prompt_tokens + self.output_tokens


def cost_of(rates: CostPerMtok | None, price: Price) -> float | None:
    """What the request would cost at these rates, in the operator's currency; None where there are none."""
    if rates is None:
        return None
    return (rates.prompt * price.prompt_tokens + rates.completion * price.output_tokens) / 1e6
