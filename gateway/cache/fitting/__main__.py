"""`python -m gateway.cache.fitting --data PATH`: fit and calibrate the decision, and write its coefficients."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
import numpy as np

from gateway.cache.fitting.check import check, growth
from gateway.cache.fitting.fit import Fit
from gateway.cache.fitting.questions import read_questions

_OUT = Path(__file__).parent.parent / "data" / "decision.json"


def main() -> int:
    """Returns 0, 1 when a check found a bound broken, or 2 when the data are missing."""
    parser = argparse.ArgumentParser(prog="python -m gateway.cache.fitting", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with cache/qqp_calibration_*.csv.gz")
    parser.add_argument(
        "--vectors", type=Path, required=True, help=".npy with a unit vector for each question, in order"
    )
    parser.add_argument("--encoder", required=True, help="id of the encoder that made the vectors")
    parser.add_argument("--out", type=Path, default=_OUT, help="where the coefficients go (default: into the package)")
    parser.add_argument("--seed", type=int, default=1, help="of folds and resamples (default %(default)s)")
    parser.add_argument(
        "--check", type=int, metavar="N", help="write nothing: N times fit without 40 %% and measure there"
    )
    parser.add_argument(
        "--growth", action="store_true", help="write nothing: fit on a quarter and play ever longer streams of the rest"
    )
    options = parser.parse_args()
    try:
        questions, vectors = read_questions(options.data), np.load(options.vectors)
    except FileNotFoundError as error:
        print(f"fitting: {error.filename} is missing; it is not part of the project", file=sys.stderr)
        return 2
    if options.check is not None:
        return 1 if check(questions, vectors, range(options.seed, options.seed + options.check), print) else 0
    if options.growth:
        return 1 if growth(questions, vectors, options.seed, print) else 0
    coefficients = Fit(encoder=options.encoder, seed=options.seed, note=print).run(questions, vectors)
    options.out.write_bytes(msgspec.json.format(msgspec.json.encode(coefficients), indent=0) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
