"""Capacity planning: the number of replicas that a peak needs."""
