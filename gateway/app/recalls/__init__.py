"""Recalls of one process, assembled."""
