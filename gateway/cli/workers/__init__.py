"""Supervision of a gateway whose public port several worker processes serve."""

from typing import Final

MACHINE_PROCESS: Final = "machine-process"
"""Command of one process, for the supervisor alone; its argument is the MachineProcessSpec as JSON."""
