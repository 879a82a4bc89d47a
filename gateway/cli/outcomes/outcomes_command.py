"""The command `penstock policy outcomes`: what to compare, what it may cost, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gateway.cli.actions import print_json
from gateway.cli.admin_client import add_connection
from gateway.cli.commands import CommandError, UsageError
from gateway.cli.parsing.arguments import count

CHECK_NAMES = ("exact", "contains", "regex", "number")
TIMEOUT_S = 300.0
_PROGRESS_STEP = 25


def add_outcomes(actions: Any) -> None:
    """Add the command to those of policies."""
    parser = actions.add_parser("outcomes", help="compare two models on prompts, for policy train and bench routing")
    server = "a deployment of the gateway that runs, or the URL of a server (URL#MODEL where it has several)"
    parser.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="JSON lines: prompt or messages")
    parser.add_argument("--small", required=True, metavar="MODEL", help=server)
    parser.add_argument("--large", required=True, metavar="MODEL", help="the one it is compared with; the same")
    scorer = parser.add_mutually_exclusive_group(required=True)
    scorer.add_argument("--check", choices=CHECK_NAMES, help="compare answers with the `answer` of each line")
    scorer.add_argument("--judge", metavar="MODEL", help="a model that compares both answers, in both orders; the same")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="outcomes; an earlier run goes on")
    parser.add_argument("--max-tokens", type=count, default=512, metavar="N", help="of an answer (default %(default)s)")
    parser.add_argument(
        "--concurrency", type=count, default=4, metavar="N", help="prompts at once (default %(default)s)"
    )
    parser.add_argument("--limit", type=count, metavar="N", help="compare the first N prompts only")
    parser.add_argument("--key-env", metavar="NAME", help="environment variable with the API key of the servers")
    for role in ("small", "large", "judge"):
        parser.add_argument(
            f"--{role}-prices",
            metavar="IN,OUT",
            help="cost of a million prompt and completion tokens",
        )
    parser.add_argument("--yes", "-y", action="store_true", help="do not prompt for the estimate")
    add_connection(parser)
    parser.set_defaults(command=policy_outcomes)


def policy_outcomes(options: argparse.Namespace) -> int:
    """Compare two models on a file of prompts; 1 when some prompts failed."""
    from gateway.cli.outcomes.prompt_file import OutcomesError

    try:
        return asyncio.run(_compare(options))
    except OutcomesError as error:
        raise CommandError(str(error)) from error


async def _compare(options: argparse.Namespace) -> int:
    import httpx

    from gateway.cli.outcomes.answer_check import require_answers
    from gateway.cli.outcomes.answer_judge import AnswerJudge
    from gateway.cli.outcomes.gathering import Comparison, estimated, gather_outcomes
    from gateway.cli.outcomes.places import model_places
    from gateway.cli.outcomes.prompt_file import OutcomeFile, read_prompts

    prompts = read_prompts(options.prompts)[: options.limit]
    if options.check is not None:
        require_answers(options.check, prompts)
    places = model_places(options)
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=4 * options.concurrency)
        servers = {
            role: place.server(
                await stack.enter_async_context(
                    httpx.AsyncClient(
                        headers=_key_headers(options), timeout=TIMEOUT_S, limits=limits, **place.connection
                    )
                )
            )
            for role, place in places.items()
        }
        scorer = options.check or AnswerJudge(servers["judge"])
        comparison = Comparison(
            small=servers["small"], large=servers["large"], scorer=scorer, max_tokens=options.max_tokens
        )
        file = OutcomeFile(options.out, (comparison.small.name, comparison.large.name))
        left = [one for one in prompts if one.key not in file.keys]
        if left:
            _confirm(options, estimated(comparison, left), len(left), len(prompts) - len(left))
        with file:
            done = await gather_outcomes(
                comparison, left, file, concurrency=options.concurrency, on_progress=_progress(len(left))
            )
    return _report(options, comparison, done, len(prompts) - len(left))


def _key_headers(options: argparse.Namespace) -> dict[str, str]:
    if options.key_env is None:
        return {}
    key = os.environ.get(options.key_env)
    if not key:
        raise UsageError(f"--key-env: the environment has no {options.key_env}")
    return {"authorization": f"Bearer {key}"}


def _confirm(options: argparse.Namespace, estimate: Any, num_left: int, num_done: int) -> None:
    """Print the estimate to stderr, and prompt unless `--yes` is given. Raises CommandError or UsageError."""
    already = f", {num_done} have outcomes already" if num_done else ""
    print(f"{num_left} prompts to compare{already}; at most:", file=sys.stderr)
    for role, num in estimate.num_requests.items():
        cost = estimate.costs[role]
        priced = f"cost unknown (--{role}-prices)" if cost is None else f"cost {cost:.4g}"
        tokens = f"{estimate.num_prompt_tokens[role]:,} + {estimate.num_completion_tokens[role]:,} tokens"
        print(f"  {role:<6} {num:,} requests, {tokens}, {priced}", file=sys.stderr)
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("no terminal to prompt; give --yes to go ahead")
    print("go ahead? [y/N] ", end="", file=sys.stderr, flush=True)
    if input().strip().lower() not in ("y", "yes"):
        raise CommandError("no request was sent")


def _progress(num: int) -> Any:
    def show(num_done: int) -> None:
        if num_done % _PROGRESS_STEP == 0 or num_done == num:
            print(f"{num_done} of {num} prompts", file=sys.stderr)

    return show


def _report(options: argparse.Namespace, comparison: Any, done: Any, num_before: int) -> int:
    small, large = comparison.small.name, comparison.large.name
    if options.json:
        print_json(
            {
                "file": str(options.out),
                "weak": small,
                "strong": large,
                "num_outcomes": num_before + done.num_done,
                "num_failed": done.num_failed,
                "has_logprobs": done.has_odds,
            }
        )
    else:
        print(f"{options.out}: outcomes of {num_before + done.num_done} prompts")
        print(f"next: penstock policy train --data {options.out} --weak {small} --strong {large} --out pair.json")
    if done.num_done and not done.has_odds:
        print(
            f"warning: {small} states no log probabilities, so these outcomes teach a cascade which prompts to skip "
            "and nothing about the first tokens of an answer",
            file=sys.stderr,
        )
    if done.num_failed:
        print(f"{done.num_failed} prompts failed; run it again to retry them: {done.first_failure}", file=sys.stderr)
        return 1
    return 0
