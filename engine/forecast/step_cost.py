"""Durations of decode steps with draft tokens and without, learnt from the steps themselves. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

_RETAINED_PLAIN = 7
_RETAINED_VERIFIED = 15
_REFIT_EVERY = 8
"""Number of verifications between two fits of their cost, which changes slowly and is read in every drafting step."""
_STALE_AFTER = 128
"""Number of plain steps without a verification, or of verifications elsewhere, after which a measurement is stale."""
_READING_TOKENS = 16
"""Number of consecutive unread tokens from which drafting time counts as reading."""
_UNKNOWN_FIXED_RATIO = 1.0
_UNKNOWN_DRAFT_RATIO = 0.1
_LEAST_S = 1e-9
"""Least seconds of one draft token, so that free ones are not unlimited."""


class _Recent:
    """Median of the last few durations: a hiccup of the machine does not show."""

    __slots__ = ("_median", "_values")

    def __init__(self, num_retained: int) -> None:
        self._values: deque[float] = deque(maxlen=num_retained)
        self._median: float | None = None

    def add(self, value: float) -> None:
        self._values.append(value)
        self._median = None

    @property
    def value(self) -> float:
        """Median of the recent durations; 0 while there are none."""
        if self._median is None:
            self._median = _median(self._values)
        return self._median


def _median(values: Collection[float]) -> float:
    """Return the lower median, because hiccups only lengthen a duration; 0 without values."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


class _Correction:
    """Weight of a measurement that only drafting renews: halved after every _STALE_AFTER plain steps.

    A measurement taken while the machine was busy must not suppress draft tokens for good.
    """

    def __init__(self) -> None:
        self._num_plain = 0

    def pass_plain(self) -> None:
        self._num_plain += 1

    def renew(self) -> bool:
        """Record a new measurement; return whether the earlier ones are stale."""
        is_stale = self._num_plain >= _STALE_AFTER
        self._num_plain = 0
        return is_stale

    @property
    def share(self) -> float:
        return 0.5 ** (self._num_plain // _STALE_AFTER)


class _Curve:
    """Recent durations by number of sequences, interpolated between the numbers that were seen."""

    def __init__(self) -> None:
        self._by_size: dict[int, _Recent] = {}

    def observe(self, num_seqs: int, seconds: float) -> None:
        recent = self._by_size.get(num_seqs)
        if recent is None:
            recent = self._by_size[num_seqs] = _Recent(_RETAINED_PLAIN)
        recent.add(seconds)

    def at(self, num_seqs: int) -> float | None:
        """Return the seconds of a step of `num_seqs` sequences; None above the largest number that was measured."""
        known = self._by_size.get(num_seqs)
        if known is not None:
            return known.value
        above = min((size for size in self._by_size if size > num_seqs), default=None)
        if above is None:
            return None
        below = max((size for size in self._by_size if size < num_seqs), default=None)
        high = self._by_size[above].value
        if below is None:
            return high
        low = self._by_size[below].value
        return low + (high - low) * (num_seqs - below) / (above - below)


class _Verification:
    """Duration of a verifying step in plain steps, as a line over the drafts per sequence."""

    def __init__(self) -> None:
        self.correction = _Correction()
        # Cells by power of two of the drafts per sequence: what was drafted in it, and the ratios measured.
        self._cells: dict[int, tuple[_Recent, _Recent]] = {}
        self._seen_at: dict[int, int] = {}
        self._num_seen = 0
        self._line = (0.0, 0.0)
        self._num_until_fit = 0

    def observe(self, drafts_per_seq: float, ratio: float) -> None:
        if self.correction.renew():
            self._cells.clear()
        key = int(4 * drafts_per_seq).bit_length()
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Recent(_RETAINED_VERIFIED), _Recent(_RETAINED_VERIFIED)
            self._num_until_fit = 0
        drafts, ratios = cell
        drafts.add(drafts_per_seq)
        ratios.add(ratio)
        self._num_until_fit -= 1
        self._num_seen += 1
        self._seen_at[key] = self._num_seen
        for old in [old for old in self._cells if self._num_seen - self._seen_at[old] > _STALE_AFTER]:
            del self._cells[old]

    def line(self) -> tuple[float, float]:
        """Return (fixed, per draft and sequence) in plain steps, by least squares over the cells; none is negative."""
        if self._num_until_fit <= 0:
            points = [(drafts.value, ratios.value - 1.0) for drafts, ratios in self._cells.values()]
            self._line = _fit(points)
            self._num_until_fit = _REFIT_EVERY
        share = self.correction.share
        return share * self._line[0], share * self._line[1]


class StepCosts:
    """Durations of plain steps, of verification and of drafting; verification is stored relative to a plain step.

    The ratio hardly depends on the context's length or on what else the machine does, so it stays good while plain
    steps are few.
    """

    def __init__(self) -> None:
        self._plain = _Curve()
        self._pass = _Curve()
        self._read = _Recent(_RETAINED_PLAIN)
        self._verifications: dict[int, _Verification] = {}

    def observe(self, num_seqs: int, num_drafts: int, seconds: float) -> None:
        """Record a decode step that verified `num_drafts` draft tokens, possibly none."""
        if num_drafts:
            self.observe_verification(num_seqs, num_drafts, seconds)
        else:
            self.observe_plain(num_seqs, seconds)

    def observe_plain(self, num_seqs: int, seconds: float) -> None:
        """Record a decode step without draft tokens."""
        self._plain.observe(num_seqs, seconds)
        verification = self._verifications.get(num_seqs.bit_length())
        if verification is not None:
            verification.correction.pass_plain()

    def observe_verification(self, num_seqs: int, num_drafts: int, seconds: float) -> None:
        """Record a decode step with draft tokens; `seconds` excludes the time in which a model made them.

        The step is ignored while no plain step was measured.
        """
        plain_s = self.plain_s(num_seqs)
        if plain_s > 0.0:
            bucket = num_seqs.bit_length()
            verification = self._verifications.get(bucket)
            if verification is None:
                verification = self._verifications[bucket] = _Verification()
            verification.observe(num_drafts / num_seqs, seconds / plain_s)

    def observe_drafting(self, num_seqs: int, num_passes: int, num_unread: int, seconds: float) -> None:
        """Record a draft model's call that read `num_unread` tokens and drafted one a sequence `num_passes` times."""
        if num_unread < _READING_TOKENS * num_seqs:
            self._pass.observe(num_seqs, seconds / num_passes)
            return
        making_s = num_passes * (self.pass_s(num_seqs) or 0.0)
        self._read.add(max(0.0, seconds - making_s) / num_unread)

    def plain_s(self, num_seqs: int) -> float:
        """Return the seconds of a step of `num_seqs` tokens without draft tokens; 0 without a measurement."""
        return self._plain.at(num_seqs) or 0.0

    def pass_s(self, num_seqs: int) -> float | None:
        """Return the seconds of one token of the draft model for `num_seqs` sequences; None without a measurement."""
        return self._pass.at(num_seqs)

    @property
    def read_token_s(self) -> float:
        """Seconds the draft model takes to read one token of a new text; 0 without a measurement."""
        return self._read.value

    def verification(self, num_seqs: int) -> tuple[float, float]:
        """Return the cost that verification adds to a step, in plain steps: (fixed, per draft token and sequence)."""
        bucket = num_seqs.bit_length()
        found = self._verifications.get(bucket)
        if found is None:
            if not self._verifications:
                return _UNKNOWN_FIXED_RATIO, _UNKNOWN_DRAFT_RATIO
            found = self._verifications[min(self._verifications, key=lambda known: abs(known - bucket))]
        return found.line()

    def of_step(self, num_seqs: int, *, with_model: bool = False) -> tuple[float, float, float]:
        """Return the seconds of a step of `num_seqs` sequences: plain, more with draft tokens, more for each.

        `with_model`: a draft model makes them, one round for all sequences at a time.
        """
        plain_s = self.plain_s(num_seqs)
        fixed, each = self.verification(num_seqs)
        each_s = each * plain_s
        if with_model:
            pass_s = self.pass_s(num_seqs)
            each_s += plain_s if pass_s is None else pass_s
        return plain_s, fixed * plain_s, max(each_s / num_seqs, _LEAST_S)


def _fit(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the non-negative (intercept, slope) of a line through points; a single point counts half for each."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = max(0.0, sum(y for _, y in points) / len(points))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread <= 0.0:
        return 0.5 * mean_y, 0.5 * mean_y / mean_x
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / spread)
    intercept = mean_y - slope * mean_x
    return (intercept, slope) if intercept >= 0.0 else (0.0, mean_y / mean_x)
