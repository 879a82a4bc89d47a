"""Paged KV cache: block allocation, prefix cache and pool size."""
