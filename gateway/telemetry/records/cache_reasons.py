"""Why the cache did what it did, as a closed set: a metric label."""

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
    "language",
    "time_dependent",
    "personal",
]
"""Why nothing similar may be given: the last message is not text alone; tools are or were in play; more chance is
wanted than the policy allows; an answer of its own (seed, several choices, log probabilities); too little or too much
text to compare; a text that is not what it looks like, or hardly Latin; an answer that will be another tomorrow, or for
somebody else."""

SimilarReason = Literal["similar", "alone", "doubtful", "closed", "no_vector", "late"]
"""What became of a lookup of similar answers: served; nothing near; something near that is not right often enough;
right often enough, had audits or what the promise has left not raised the floor; no vector of the text was to be had;
a deployment was faster."""

ExactReason = Literal["policy", "no_store", "no_scope", "no_cache", "exact", "new", "stale", "lacking", "shared"]
"""Switched off; what the client asked for (`no_store`, `no_cache`); nobody to keep it for; an answer of its own, none
yet, one past its time, one without what this request asks for (usage, a service tier), or
one under way that an identical request shares."""

CacheReason = ExactReason | GuardReason | SimilarReason
