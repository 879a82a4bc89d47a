"""`python -m engine.compiled`: compiles ahead of the first start, which then takes as long as every other."""

from __future__ import annotations

from engine.compiled import likely, lookup, team, weighing

if __name__ == "__main__":
    team.prepare()
    lookup.prepare()
    likely.prepare()
    weighing.prepare()
