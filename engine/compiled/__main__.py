"""`python -m engine.compiled`: compiles ahead of the first start, which then takes as long as every other."""

from __future__ import annotations

from engine.compiled.team import prepare

if __name__ == "__main__":
    prepare()
