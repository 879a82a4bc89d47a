"""Types of single values in the policy document: their range, form and words, and the base of its structs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

# In Python `$` also matches before a final line feed; the look-ahead gives it JSON Schema's meaning.
Id = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}(?!\n)$",
        description="1 to 64 of a-z, 0-9, dot, underscore and hyphen, starting with a letter or digit",
    ),
]
"""Name of an item of a list; also a header value and a metric label, hence the small alphabet."""
Description = Annotated[str, Meta(max_length=300)]
ModelName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}(?!\n)$",
        description="1 to 128 of letters, digits and . _ : / @ -, starting with a letter or digit",
    ),
]
HeaderName = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}(?!\n)$", description="a header's name in lower case")
]
HeaderText = Annotated[
    str,
    Meta(
        pattern=r"^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?(?!\n)$",
        description="1 to 1,024 printable ASCII characters without spaces around them",
    ),
]
Sha256Hex = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{64}(?!\n)$",
        description="the sha256 of the whole key as 64 lower-case hex digits (penstock keys new prints it)",
    ),
]
EnvironmentName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Z_][A-Z0-9_]{0,63}(?!\n)$",
        description="the name of an environment variable, 1 to 64 of A-Z, 0-9 and underscore; never the secret itself",
        extra={"is_secret": True},
    ),
]
"""Name of the environment variable with a secret.

Errors do not repeat the value, because it may be the secret itself, pasted into the wrong place.
"""
HostName = Annotated[
    str,
    Meta(
        pattern=r"^(?=.{1,253}(?!\n)$)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?(?!\n)$",
        description="a host name of letters, digits and . _ -",
    ),
]
KubernetesService = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?!\n)$",
        description="namespace/name of a Kubernetes Service",
    ),
]
WebhookUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[\x21-\x7e]{1,1000}(?!\n)$",
        description="a URL such as https://shop.example.com/hooks, without a user, query or fragment",
    ),
]
SessionPlace = Annotated[
    str,
    Meta(
        pattern=r"^(?:field:(?:prompt_cache_key|user)|header:[a-z0-9][a-z0-9_-]{0,63})(?!\n)$",
        description="field:prompt_cache_key, field:user, or header: and a header's name in lower case",
    ),
]
Port = Annotated[int, Meta(ge=1, le=65_535)]
PortName = Annotated[
    str, Meta(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?(?!\n)$", description="a port's name in the Service")
]
BasePath = Annotated[
    str, Meta(pattern=r"^(?:|(?:/[A-Za-z0-9._~-]+)+)(?!\n)$", description="empty, or a path such as /v1")
]
SlowStartSeconds = Annotated[int, Meta(ge=0, le=3_600)]
MemberCount = Annotated[int, Meta(ge=1, le=1_024)]
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00\r\n]*(?!\n)$", description="an absolute path")]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
Seconds = Annotated[int, Meta(ge=1, le=31_536_000)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Concurrency = Annotated[int, Meta(ge=1, le=100_000)]
Turns = Annotated[int, Meta(ge=0, le=1_000_000_000)]
QueueLength = Annotated[int, Meta(ge=0, le=1_000_000)]
Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
HedgeRatio = Annotated[float, Meta(gt=0.0, le=0.1)]
ExploreRatio = Annotated[float, Meta(gt=0.0, le=0.5)]
Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
Weight = Annotated[float, Meta(gt=0.0, le=1_000_000.0)]
Price = Annotated[float, Meta(ge=0.0, le=1_000_000.0)]

TokenBudget = Annotated[int, Meta(ge=1, le=1_000_000_000_000_000)]
Money = Annotated[float, Meta(gt=0.0, le=1_000_000.0)]

OnStoreLoss = Literal["allow", "refuse"]
SelectPolicy = Literal[
    "first_available",
    "weighted",
    "least_in_flight",
    "latency_first",
    "least_cost_within_slo",
    "scored",
    "quality_then_latency",
    "cost_cap",
    "nearest_first",
    "sticky",
    "canary",
    "cascade",
]
ScorerName = Literal[
    "affinity", "cost", "headroom", "latency", "order", "pace", "quality", "session", "zone"
]  # fmt: skip
TrimStrategy = Literal["minify", "dedupe", "cap_tool_outputs", "drop_old_turns", "extract_passages", "downscale_images"]
StickyBy = Literal["conversation", "tenant"]
CacheMode = Literal["off", "exact", "exact_then_semantic"]
CacheScope = Literal["user", "tenant", "shared"]
CacheHistory = Literal["exact", "standalone"]
TimeDependentRule = Literal["bypass", "reuse"]
PersonalRule = Literal["bypass", "per_user"]
OverloadStep = Literal["trim", "small_model", "max_tokens", "stale_cache", "shed"]
EnginePriority = Literal["interactive", "batch"]
PlainAsStream = Literal["suspected", "always", "never"]
PredictionUse = Literal["auto", "on", "off"]
DialectName = Literal["openai", "responses", "anthropic"]
ImageRule = Literal["any", "inline_only"]
UnknownFields = Literal["pass", "reject"]
ResumeRule = Literal["off", "exact", "best_effort"]
Continuation = Literal["continue_final_message", "trailing_message"]
PrefixSalt = Literal["header", "body"]
NoRouteCode = Literal["model_not_found", "model_not_allowed", "unsupported_operation"]
OperationName = Literal["chat", "completions", "embeddings"]
Modality = Literal["text", "image", "audio", "video", "file"]


class DocumentPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything in the document."""
