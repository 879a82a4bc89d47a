"""Texts to unit vectors on the CPU, off the event loop, with nothing downloaded and no torch in the process."""
