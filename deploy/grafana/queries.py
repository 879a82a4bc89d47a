"""The few shapes of PromQL that all panels are made of."""

from __future__ import annotations

from deploy.grafana.panels import Query

_WINDOW = "$__rate_interval"


def rate(counter: str, *by: str, where: str = "") -> Query:
    """Events a second, by labels."""
    return Query(f"sum{_by(by)} (rate({counter}{_where(where)}[{_WINDOW}]))", _legend(by))


def quantile(share: float, histogram: str, *by: str, where: str = "") -> Query:
    """A quantile of a histogram of seconds, by labels; `histogram` without `_bucket`."""
    inside = f"sum{_by(('le', *by))} (rate({histogram}_bucket{_where(where)}[{_WINDOW}]))"
    return Query(f"histogram_quantile({share:g}, {inside})", f"p{share * 100:g} {_legend(by)}".strip())


def quantiles(histogram: str, *by: str, where: str = "") -> tuple[Query, Query, Query]:
    """p50, p95 and p99."""
    return (
        quantile(0.5, histogram, *by, where=where),
        quantile(0.95, histogram, *by, where=where),
        quantile(0.99, histogram, *by, where=where),
    )


def mean(histogram: str, *by: str, where: str = "") -> Query:
    """Mean seconds, by labels."""
    total, count = (f"sum{_by(by)} (rate({histogram}_{part}{_where(where)}[{_WINDOW}]))" for part in ("sum", "count"))
    return Query(f"{total} / {count}", _legend(by))


def ratio(part: str, whole: str, *by: str, where: str = "", of: str = "") -> Query:
    """One counter's rate as a share of another's; `where` narrows the part, `of` the whole."""
    rates = (f"sum{_by(by)} (rate({name}{_where(labels)}[{_WINDOW}]))" for name, labels in ((part, where), (whole, of)))
    return Query(" / ".join(rates), _legend(by))


def gauge(name: str, *by: str, function: str = "sum", where: str = "") -> Query:
    """A gauge over all processes, by labels."""
    return Query(f"{function}{_by(by)} ({name}{_where(where)})", _legend(by))


def named(query: Query, legend: str) -> Query:
    """The same under another name."""
    return Query(query.expr, legend)


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def _where(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _legend(labels: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)
