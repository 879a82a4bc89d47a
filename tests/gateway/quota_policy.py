"""A gateway policy with tenants that have keys and limits."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from tests.gateway.stack import policy_text


def key_of(tenant: str) -> dict[str, str]:
    """The header a tenant sends."""
    return {"authorization": f"Bearer sk-{tenant}"}


def quota_policy(folder: Path, tenants: dict[str, str], **values: int) -> str:
    """The usual test policy with these tenants and their `limits` as YAML in flow style."""
    lines = []
    for tenant, limits in tenants.items():
        digest = sha256(f"sk-{tenant}".encode()).hexdigest()
        lines.append(f'  - {{id: {tenant}, keys: [{{id: k, sha256: "{digest}"}}], limits: {limits}}}')
    text = policy_text(folder, **values).replace(
        "model: tiny,", "model: tiny, cost_per_mtok: {prompt: 10, completion: 20},"
    )
    text = text.replace("model: big,", "model: big, cost_per_mtok: {prompt: 100, completion: 200},")
    return "\n".join([text.rstrip(), "tenants:", *lines, ""])
