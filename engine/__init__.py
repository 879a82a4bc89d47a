"""Inference engine: a front process (HTTP, text) and a core process (model, scheduler, KV cache)."""
