"""Reasons for cache results, as a closed set of metric labels."""

from __future__ import annotations

from typing import Literal

GuardReason = Literal[
    "no_text",
    "tools",
    "temperature",
    "seed",
    "choices",
    "logprobs",
    "too_short",
    "too_long",
    "suspicious",
    "time_dependent",
    "personal",
]
"""Reason why a request gets no semantic hit.

- `no_text`, `tools`: the last message is not text alone, or tools are or were in use.
- `temperature`: the request allows more randomness than the policy.
- `seed`, `choices`, `logprobs`: the request needs an answer of its own.
- `too_short`, `too_long`: the text cannot be compared.
- `suspicious`: the text imitates other characters.
- `time_dependent`, `personal`: the answer changes with the day or the person.
"""

SimilarReason = Literal["similar", "unguarded", "alone", "doubtful", "closed", "no_vector", "late", "skipped", "failed"]
"""Result of a semantic lookup.

- `similar`: served.
- `unguarded`: served in a language without guards, by a stricter margin.
- `alone`: no neighbour.
- `doubtful`: the neighbour's match probability is below the threshold.
- `closed`: it passes the policy's threshold, but not the one that audits or the error budget have raised.
- `no_vector`: the prompt has no embedding.
- `late`: the lookup ended after the deployment's response had begun.
- `skipped`: there was none, because it would have been late.
- `failed`: it ended with an error, which is logged.
"""

ExactReason = Literal[
    "policy",
    "no_store",
    "no_scope",
    "no_cache",
    "regenerate",
    "time_dependent",
    "personal",
    "exact",
    "new",
    "stale",
    "lacking",
    "shared",
]
"""Result of an exact lookup, or the reason why there was none.

- `policy`: switched off.
- `no_store`, `no_cache`: the client's cache directive.
- `regenerate`: the same user repeats an equal conversation soon after its answer.
- `time_dependent`, `personal`: the answer changes with the time or the user, and the route does not reuse it.
- `no_scope`: no tenant or scope to store the response for.
- `exact`: hit.
- `new`, `stale`: no cached response, or an expired one.
- `lacking`: the cached response lacks something that this request requires, such as usage or a service tier.
- `shared`: the response of an identical request in flight.
"""

CacheReason = ExactReason | GuardReason | SimilarReason
