"""A bench's requests as one HTML file with plots; Plotly's own script is inside, so that it opens anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtests.clients.chat_streams import Served, Slo, Tally
from loadtests.harness.measures import percentile

_WINDOW_S = 1.0


def write_overload_report(
    path: Path, tallies: Sequence[Tally], factors: Sequence[float], steps: Sequence[Sequence[Served]], slo: Slo
) -> None:
    """Goodput by step, and first tokens and refusals over time. Raises ImportError without plotly, OSError."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    served = [one for step in steps for one in step]
    figure = make_subplots(
        rows=3,
        cols=1,
        subplot_titles=(
            "Offered, good and refused, per second, by step",
            "First token of admitted requests over time",
            "What became of the requests of each second",
        ),
    )
    labels = [f"{number + 1}: {factor:g} x" for number, factor in enumerate(factors)]
    seconds = [tally.goodput_per_s and tally.good_share * tally.num_offered / tally.goodput_per_s for tally in tallies]
    offered = [tally.num_offered / span if span else 0.0 for tally, span in zip(tallies, seconds, strict=True)]
    figure.add_trace(go.Bar(name="offered", x=labels, y=offered), row=1, col=1)
    figure.add_trace(go.Bar(name="good", x=labels, y=[tally.goodput_per_s for tally in tallies]), row=1, col=1)
    _first_tokens(figure, go, served, slo)
    _outcomes(figure, go, served, slo)
    figure.update_layout(height=1100, barmode="group", title="Overload")
    figure.update_yaxes(type="log", row=1, col=1)
    figure.write_html(str(path), include_plotlyjs=True)


def _first_tokens(figure: Any, go: Any, served: Sequence[Served], slo: Slo) -> None:
    windows = _by_second([one for one in served if one.is_admitted])
    for share in (0.5, 0.99):
        points = [(at, percentile([one.ttft_s for one in part], share) * 1e3) for at, part in windows]
        trace = go.Scatter(name=f"p{share * 100:g} (ms)", x=[at for at, _ in points], y=[value for _, value in points])
        figure.add_trace(trace, row=2, col=1)
    figure.add_hline(y=slo.ttft_s * 1e3, line_dash="dash", annotation_text="target", row=2, col=1)


def _outcomes(figure: Any, go: Any, served: Sequence[Served], slo: Slo) -> None:
    windows = _by_second(served)
    kinds = {
        "good": lambda one: one.is_good(slo),
        "answered late": lambda one: one.is_whole and not one.is_good(slo),
        "refused": lambda one: one.is_refused,
        "other": lambda one: not (one.is_whole or one.is_refused),
    }
    for name, is_kind in kinds.items():
        counts = [sum(map(is_kind, part)) for _, part in windows]
        trace = go.Scatter(name=name, x=[at for at, _ in windows], y=counts, stackgroup="outcome")
        figure.add_trace(trace, row=3, col=1)


def _by_second(served: Sequence[Served]) -> list[tuple[float, list[Served]]]:
    windows: dict[int, list[Served]] = {}
    for one in served:
        windows.setdefault(int(one.offer.at_s / _WINDOW_S), []).append(one)
    return [(number * _WINDOW_S, windows[number]) for number in sorted(windows)]
