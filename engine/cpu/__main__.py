"""Ahead-of-time compilation: `python -m engine.cpu` fills the compile cache before the first start."""

from __future__ import annotations

from engine.cpu.execution import thread_pool
from engine.cpu.jit.compiler import keep_compiled_code
from engine.cpu.multi_step import argmax, draft_budget, ngram

if __name__ == "__main__":
    keep_compiled_code()
    thread_pool.prepare()
    ngram.prepare()
    argmax.prepare()
    draft_budget.prepare()
