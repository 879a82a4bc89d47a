"""Embeddings: texts to vectors, by a deployment or by the gateway's own encoder."""
