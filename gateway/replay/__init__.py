"""Replays of recorded answers, and the search for the change that changed one."""
