"""Tensor parallelism: several processes share every layer of a model."""
