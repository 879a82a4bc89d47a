"""Ahead-of-time compilation: `python -m engine.cpu` fills the compile cache before the first start."""

from __future__ import annotations

from engine.cpu.execution import thread_pool as team
from engine.cpu.multi_step import argmax as likely
from engine.cpu.multi_step import draft_budget as weighing
from engine.cpu.multi_step import ngram as lookup

if __name__ == "__main__":
    team.prepare()
    lookup.prepare()
    likely.prepare()
    weighing.prepare()
