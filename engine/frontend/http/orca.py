"""The engine's load as other proxies read it: the ORCA response header in its text form."""

from __future__ import annotations

from engine.protocol import Load

HEADER = "endpoint-load-metrics"


def load_header(load: Load) -> str:
    """Return the load header, such as `TEXT named_metrics.kv_cache_utilization=0.25, …`."""
    used = load.num_blocks_total - load.num_blocks_free
    metrics = {
        "kv_cache_utilization": f"{used / load.num_blocks_total:.4f}" if load.num_blocks_total else "0",
        "num_requests_waiting": str(load.num_waiting),
        "num_requests_running": str(load.num_running),
    }
    return "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())
