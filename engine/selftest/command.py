"""Check that speculation is lossless on any model: `penstock engine selftest`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.bundled import model_dir
from engine.config import CoreConfig, EngineConfigError
from engine.models.prediction_heads import FILE_NAME
from engine.selftest.core_client import CoreFailed
from engine.selftest.speculation import Report, check_speculation, default_draft_model


def main(argv: Sequence[str]) -> int:
    """Run the test and print its results, with JSON as the last line.

    Returns:
        0 if speculation is lossless, 1 if it is not, 2 if the test cannot run.
    """
    options = _parser().parse_args(argv)
    model = (options.model or model_dir("large")).resolve()
    has_heads = (model / FILE_NAME).is_file()
    draft_model = options.draft_model or (None if has_heads else default_draft_model(model))
    try:
        config = CoreConfig.of(
            model_dir=model,
            draft_model_dir=draft_model.resolve() if draft_model is not None else None,
            device=options.device,
            # With heads in the model, `auto` uses those instead of a draft model.
            speculation="draft" if has_heads and draft_model is not None else "auto",
            num_threads=options.threads,
        )
        report = check_speculation(config, num_samples=options.samples, seed=options.seed)
    except (EngineConfigError, CoreFailed) as error:
        print(f"engine selftest: {error}", file=sys.stderr)
        return 2
    results = _results(report, model, draft_model)
    if not options.json:
        print("\n".join(f"{name:<20} {value}" for name, value in results.items()))
    print(json.dumps(results))
    return 0 if report.is_lossless else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock engine selftest", description=__doc__)
    parser.add_argument("--model", type=Path, metavar="DIR", help="model folder (default: the large bundled model)")
    parser.add_argument("--draft-model", type=Path, metavar="DIR", help="smaller model with the same tokenizer")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0: every core")
    parser.add_argument("--samples", type=int, default=400, help="answers to one prompt (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    return parser


def _results(report: Report, model: Path, draft_model: Path | None) -> dict[str, str | int | float | None]:
    return {
        "model": model.name,
        "prediction_heads": int((model / FILE_NAME).is_file() and draft_model is None),
        "draft_model": None if draft_model is None else draft_model.name,
        "dtype": report.dtype,
        "greedy_tokens": report.greedy.num_tokens,
        "greedy_differences": report.greedy.num_differences,
        "greedy_ties": report.greedy.num_ties,
        "seeded_tokens": report.seeded.num_tokens,
        "seeded_differences": report.seeded.num_differences,
        "seeded_ties": report.seeded.num_ties,
        "chi_square": round(report.chi_square.statistic, 2),
        "degrees_of_freedom": report.chi_square.degrees_of_freedom,
        "p_value": round(report.chi_square.p_value, 4),
        "drafted_tokens": report.drafted_tokens,
        "accepted_tokens": report.accepted_tokens,
        "lossless": int(report.is_lossless),
    }
