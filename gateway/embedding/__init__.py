"""Texts to unit vectors on the CPU, off the event loop, without downloads and without torch."""
