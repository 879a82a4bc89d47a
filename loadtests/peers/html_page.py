"""A bench's results as one HTML file: a table, and one plot of bars for each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from loadtests.harness.card import Value, environment


def write_bars(path: Path, title: str, results: Mapping[str, Value], sides: Sequence[str]) -> None:
    """Write results called `side_figure` as bars by side. Raises ImportError without plotly, OSError."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    names = figures_of(results, sides)
    figure = make_subplots(rows=len(names), cols=1, subplot_titles=names)
    for row, name in enumerate(names, 1):
        values = [results.get(f"{side}_{name}") for side in sides]
        figure.add_trace(go.Bar(x=list(sides), y=values, name=name, showlegend=False), row=row, col=1)
    figure.update_layout(height=260 * len(names), title=title)
    conditions = "; ".join(f"{key} {value}" for key, value in environment().items())
    plots = figure.to_html(full_html=False, include_plotlyjs=True)
    path.write_text(
        f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title><h1>{escape(title)}</h1>"
        f"<p>{escape(conditions)}</p>{_table(results, names, sides)}{plots}"
    )


def figures_of(results: Mapping[str, Value], sides: Sequence[str]) -> list[str]:
    """Return the figures that every side has, in the order of the first side."""
    first = sides[0] + "_"
    names = [key.removeprefix(first) for key in results if key.startswith(first)]
    return [name for name in names if all(f"{side}_{name}" in results for side in sides)]


def _table(results: Mapping[str, Value], names: Sequence[str], sides: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(side)}</th>" for side in sides)
    rows = "".join(
        f"<tr><td>{escape(name)}</td>" + "".join(_cell(results[f"{side}_{name}"]) for side in sides) + "</tr>"
        for name in names
    )
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _cell(value: Value) -> str:
    return f"<td>{value:,.3f}</td>" if isinstance(value, float) else f"<td>{escape(str(value))}</td>"
