"""Attention over the paged KV pool: the backend interface, PyTorch and Triton backends."""
