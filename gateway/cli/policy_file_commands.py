"""`penstock policy check`, `prove`, `show`, `schema` and `train`: what reads files and works without a gateway."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.cli.actions import print_json
from gateway.cli.admin_client import open_client
from gateway.cli.commands import CommandError, UsageError, settings
from gateway.cli.supervisor.console import plain

if TYPE_CHECKING:
    from routing_policies.policy.document import Policy

_NO_CHECKPOINTS: Final = (
    "warning: too few outcomes have log probabilities (100 are enough; those of a gateway have none). So a cascade "
    "learns which prompts to skip and nothing about the first tokens of an answer; give --data lines with `logprobs` "
    "and `margins`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownPolicy:
    """A policy with where it comes from."""

    file: str | None
    """Path of its file; None for the policy in force of a gateway."""
    place: str
    """Its origin, for people."""
    revision: str
    policy: Policy


def policy_check(options: argparse.Namespace) -> int:
    """Check a policy and run its tests; 1 when there is anything to report."""
    import msgspec

    from gateway.access.key_width import with_callers
    from gateway.config.checks import ConfigError
    from gateway.routing.quality_files import load_predictors
    from routing_policies.advice import advice_on
    from routing_policies.loading import load_document
    from routing_policies.policy.problems import PolicyError, Problem
    from routing_policies.proof.document_check import check_document
    from routing_policies.proof.prover import proof_as_json, prove

    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    proof: dict[str, Any] | None = None
    num_tests = 0
    try:
        path, text, variables = _policy_text(options)
        policy, document = load_document(text, source=str(path), variables=variables)
        predictors = load_predictors(settings(options).policy.quality_dir)
        result = check_document(policy, document, predictors)
        problems, num_tests = result.failures, result.num_tests
        warnings = advice_on(policy, document, predictors)
        proof = None if problems else proof_as_json(with_callers(prove(policy), policy), document)
    except PolicyError as error:
        path, problems = Path(error.source), error.problems
    except ConfigError as error:
        raise UsageError(str(error)) from error
    if options.format == "json":
        report = {
            "file": str(path),
            "ok": not problems,
            "num_tests": num_tests,
            "problems": problems,
            "warnings": warnings,
            "proof": proof,
        }
        print(msgspec.json.encode(report).decode())
        return 1 if problems else 0
    for found in (*problems, *warnings):
        print(found.render(str(path)))
    if proof is not None:
        print_proof(proof, str(path), mark="warning: ")
    if not problems:
        print(f"{path}: good, {num_tests} test{'' if num_tests == 1 else 's'} passed")
    return 1 if problems else 0


def policy_prove(options: argparse.Namespace) -> int:
    """Prove a policy for all requests; 1 when anything is violated or open."""
    from gateway.access.key_width import with_callers
    from routing_policies.loading import load_document
    from routing_policies.policy.problems import PolicyError
    from routing_policies.proof.findings import PROPERTIES
    from routing_policies.proof.prover import proof_as_json, prove

    try:
        path, text, variables = _policy_text(options)
        policy, document = load_document(text, source=str(path), variables=variables)
    except PolicyError as error:
        raise CommandError(str(error)) from error
    proof = proof_as_json(with_callers(prove(policy), policy), document)
    is_proven = not proof["violations"] and not proof["open_questions"]
    if options.json:
        print_json({"file": str(path), "ok": is_proven, **proof})
        return 0 if is_proven else 1
    print_proof(proof, str(path))
    for kind in proof["proven"]:
        print(f"proven: {PROPERTIES[kind]}")
    return 0 if is_proven else 1


def print_proof(proof: dict[str, Any], source: str, *, mark: str = "") -> None:
    """Print what is violated or open, with its position and the requests that show it."""
    for found in (*proof["violations"], *proof["open_questions"]):
        print(plain(f"{source}:{found['line']}:{found['column']}: {found['path']}: {mark}{found['message']}"))
        for request in found["requests"]:
            print(plain(f"  request: {json.dumps(request, ensure_ascii=False)}"))


def policy_show(options: argparse.Namespace) -> int:
    """Print a policy with its defaults filled in, and the routes that exist unwritten as comments.

    Without a file, that is the policy in force of the running gateway, or the configured one where none runs.
    """
    import msgspec
    import yaml

    from gateway.config.running import running_product
    from routing_policies.matching import RouteTable

    runtime_dir = settings(options).process.runtime_dir
    is_running = bool(options.url) or running_product(runtime_dir) is not None
    shown = _policy_in_force(options) if options.file is None and is_running else _policy_of_file(options)
    policy, routes = shown.policy, RouteTable(shown.policy).effective_routes()
    if options.json:
        found = {"file": shown.file, "revision": shown.revision, "policy": policy, "routes": routes}
        print(msgspec.json.encode(found).decode())
        return 0
    print(plain(f"# {shown.place}, revision {shown.revision}"))
    if options.file is None and not is_running:
        print(f"# It is the configured policy; nothing runs in {runtime_dir}.")
    print(yaml.safe_dump(msgspec.to_builtins(policy), sort_keys=False, allow_unicode=True, width=120), end="")
    for route in routes[len(policy.routes) :]:
        ids = ", ".join(candidate.id for candidate in route.select.resolved())
        print(f"# {route.id}: {', '.join(route.match.models)} -> {ids} ({route.select.policy})")
    return 0


def _policy_in_force(options: argparse.Namespace) -> _ShownPolicy:
    """Return the policy in force of the running gateway; raises as `open_client` and `AdminClient.get`."""
    import msgspec

    from routing_policies.policy.document import Policy

    with open_client(options) as client:
        found = client.get("policy")
    try:
        policy = msgspec.convert(found["policy"], Policy)
    except msgspec.ValidationError as error:
        message = f"the gateway's policy is of another version ({error}); penstock policy export prints its document"
        raise CommandError(message) from error
    place = f"the policy in force at {client.shown}"
    return _ShownPolicy(file=None, place=place, revision=found["status"]["revision"], policy=policy)


def _policy_of_file(options: argparse.Namespace) -> _ShownPolicy:
    """Return the policy of the named file or of the configured one."""
    from gateway.policies.policy_file import revision_of
    from routing_policies.loading import load_policy
    from routing_policies.policy.problems import PolicyError

    try:
        path, text, variables = _policy_text(options)
        policy = load_policy(text, source=str(path), variables=variables)
    except PolicyError as error:
        raise CommandError(str(error)) from error
    return _ShownPolicy(file=str(path), place=str(path), revision=revision_of(text.encode()), policy=policy)


def policy_schema(options: argparse.Namespace) -> int:
    """Print the JSON Schema of policies."""
    from routing_policies.policy.schema import schema_of_policies

    print(json.dumps(schema_of_policies(), indent=2))
    return 0


def policy_train(options: argparse.Namespace) -> int:
    """Learn one pair's coefficients and write them; the last line printed is JSON."""
    import msgspec

    from gateway.cli.label_training import train_from_gateway
    from gateway.cli.outcomes.cascade_training import choice_lines, choice_report, choose_thresholds
    from gateway.cli.outcomes.quality_training import TrainingError, read_training_data, report_of
    from routing_policies.quality.training.cascade_choice import CascadeGoal

    goal = CascadeGoal(max_loss=options.max_loss, large_share=options.large_share)
    has_goal = goal != CascadeGoal()
    if options.data and not (options.weak and options.strong):
        raise UsageError("--data: needs --weak and --strong, the names that outcomes have in the files")
    if options.from_gateway and options.embed:
        raise UsageError("--embed: is for --data; labels of a gateway have their embeddings already, where it made any")
    if options.from_gateway and has_goal:
        raise UsageError(
            "--max-loss, --large-share: are for --data; labels of a gateway move the thresholds of its cascades "
            "themselves, as GET /admin/api/routing/cascades shows"
        )
    if options.out.is_dir() or not options.out.parent.is_dir():
        raise UsageError(f"--out: {options.out} is no file in a folder that exists")
    folder = settings(options).process.runtime_dir / "encoder" if options.embed else None
    held: dict[str, Any] = {}
    notes: list[str] = []
    try:
        if options.from_gateway:
            model, held = train_from_gateway(options)
        else:
            data = read_training_data(options.data, options.weak, options.strong, encoder_folder=folder)
            model = data.fit()
            if has_goal:
                choice = choose_thresholds(data, goal)
                held["cascade"], notes = choice_report(choice), [*choice_lines(choice, goal)]
        content = msgspec.json.format(msgspec.json.encode(model, order="deterministic"), indent=1)
        options.out.write_bytes(content + b"\n")
    except (TrainingError, OSError) as error:
        raise CommandError(str(error)) from error
    if not options.json:
        print(f"{options.out}: learned from {model.num_prompts} prompts; put it into the folder of policy.quality_dir")
        if not model.checkpoints:
            print(_NO_CHECKPOINTS)
        for note in notes:
            print(plain(note))
    print(json.dumps({**report_of(model, len(content)), **held}))
    return 0


def _policy_text(options: argparse.Namespace) -> tuple[Path, str, dict[str, str]]:
    """Return a policy file's name as given, its text, and the variables in it.

    Raises:
        UsageError: The file cannot be read.
        PolicyError: The file is not UTF-8 text.
    """
    from routing_policies.policy.problems import PolicyError, Problem

    config = settings(options)
    path: Path = options.file or config.policy.document
    try:
        return path, path.read_text(encoding="utf-8-sig"), config.process.policy_variables
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = Problem(line=line, column=column, path="", message="not UTF-8; save it as that")
        raise PolicyError(str(path), [problem]) from error
