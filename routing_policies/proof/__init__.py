"""Proofs about a policy document: what holds for all requests, or a request for which it does not hold."""
