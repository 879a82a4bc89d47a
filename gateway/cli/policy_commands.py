"""`penstock policy …`: what changes a policy, shows its history, or compares two."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from gateway.cli.actions import add_action, print_json
from gateway.cli.admin_client import AdminClient, OutdatedEdit, open_client
from gateway.cli.commands import CommandError, UsageError
from gateway.cli.parsing.arguments import count, duration_s
from gateway.cli.parsing.command_parser import command_group
from gateway.cli.plans.exported import ExportedPolicy, exported, read_export, rebase_file
from gateway.cli.plans.replayed import replay_lines
from gateway.cli.policy_file_commands import print_proof
from gateway.cli.supervisor.console import cells, one_line

Json = dict[str, Any]
MAX_REASON_CHARS = 500
Command = Callable[[argparse.Namespace], int]


def add_policy_life(actions: Any) -> None:
    """Add the subcommands that need a gateway to those that only read a file."""
    diff = add_action(actions, "diff", diff_policies, "semantic changes from one policy to another")
    diff.add_argument("old", type=Path, help="a policy file; alone: what would change in the gateway")
    diff.add_argument("new", type=Path, nargs="?", help="the other policy file")
    plan = add_action(
        actions, "plan", plan_policy, "what a policy would change and reach, and how recorded requests would fare"
    )
    plan.add_argument("file", type=Path)
    plan.add_argument("--no-replay", action="store_true", help="leave recorded requests alone")
    apply = add_action(actions, "apply", apply_policy, "make a file the policy in force, everywhere within a second")
    apply.add_argument("file", type=Path)
    _add_change(apply)
    history = add_action(actions, "history", show_history, "revisions, newest first: who, when, why")
    history.add_argument("--limit", type=count, default=20, metavar="N", help="default %(default)s")
    back = add_action(actions, "rollback", roll_back, "make an older revision the policy in force")
    back.add_argument("revision", type=count, help="its number")
    _add_change(back)
    export = add_action(actions, "export", export_policy, "print the policy in force, or another revision")
    export.add_argument("--revision", type=count, metavar="N")
    export.add_argument("--output", "-o", type=Path, metavar="FILE")
    add_canary(actions)
    init = actions.add_parser("init", help="write a commented policy to begin with")
    init.add_argument("file", type=Path, nargs="?", default=Path("policy.yaml"), help="default %(default)s")
    init.add_argument("--json", action="store_true", help="machine-readable")
    init.set_defaults(command=init_policy)
    taken = actions.add_parser("import-litellm", help="a policy from a LiteLLM configuration")
    taken.add_argument("file", type=Path)
    taken.add_argument("--output", "-o", type=Path, metavar="FILE", help="default: stdout")
    taken.add_argument("--json", action="store_true", help="the policy and its notes as one JSON object")
    taken.set_defaults(command=import_policy)


def _add_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", required=True, metavar="TEXT", help="for those who read the history")
    parser.add_argument(
        "--if-match",
        metavar="ETAG",
        help="refuse unless it is in force (default: the exported revision that the file names, else the compared one)",
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not prompt")


def add_canary(actions: Any) -> None:
    """Add the command `penstock policy canary`."""
    parser = actions.add_parser("canary", help="a policy in force for some of the traffic, watched against the other")
    verbs = command_group(parser)
    start = add_action(verbs, "start", start_canary, "begin one; it rolls back by itself when it is surely worse")
    start.add_argument("file", type=Path)
    start.add_argument("--percent", type=int, required=True, metavar="N", help="of the traffic, 1 to 100")
    start.add_argument("--tenant", action="append", metavar="ID", help="only of these tenants; may be repeated")
    start.add_argument("--promote-after-s", type=duration_s, metavar="SECONDS", help="default: promoted by hand")
    _add_change(start)
    add_action(verbs, "status", show_canary, "the one that runs, or the last one, with what was measured")
    for name, command, shown in (
        ("promote", promote_canary, "make it the policy in force for all"),
        ("stop", stop_canary, "everybody is back at the policy in force"),
    ):
        verb = add_action(verbs, name, command, shown)
        verb.add_argument("--reason", required=True, metavar="TEXT", help="for those who read the history")


def start_canary(options: argparse.Namespace) -> int:
    """Start a canary after showing its changes and a confirmation."""
    if not 1 <= options.percent <= 100:
        raise UsageError(f"--percent: expected 1 to 100, got {options.percent}")
    _require_terminal(options)
    text, reason = _text(options.file), _reason(options)
    file = read_export(text)
    body: Json = {"document": file.document, "reason": reason, "percent": options.percent}
    body |= {"tenants": options.tenant} if options.tenant else {}
    body |= {"promote_after_s": options.promote_after_s} if options.promote_after_s is not None else {}
    with open_client(options, source=str(options.file)) as client:
        etag = options.if_match or file.base or client.get("policy")["etag"]
        _confirmed(options, client, text)
        with _ways_out(options, file):
            canary = client.call("POST", "policy/canary", body, if_match=etag)["canary"]
    if options.json:
        print_json(canary)
    else:
        print(f"canary {canary['id']} ({canary['revision']}) has {canary['percent']} % of the traffic")
    return 0


def show_canary(options: argparse.Namespace) -> int:
    """Print the evidence about the running canary, or else about the last one."""
    with open_client(options) as client:
        found = client.get("policy/canary")
    if options.json:
        print_json(found)
        return 0
    shown = cells(([found["canary"]] if found["canary"] else found["past"])[:1])
    for canary in shown:
        print(_canary_line(canary))
        for metric in canary["evidence"].get("metrics", ()):
            print(f"  {metric['name']:<8} {_arm(metric['new'])} against {_arm(metric['old'])}: {metric['verdict']}")
    if not shown:
        print("there was none yet")
    return 0


def promote_canary(options: argparse.Namespace) -> int:
    """Put the canary's policy in force for all requests."""
    with open_client(options) as client:
        done = client.call("POST", "policy/canary/promote", {"reason": _reason(options)})
    return _report(options, done)


def stop_canary(options: argparse.Namespace) -> int:
    """Stop the canary: no request is served by its policy any more."""
    with open_client(options) as client:
        canary = client.call("POST", "policy/canary/stop", {"reason": _reason(options)})["canary"]
    print_json(canary) if options.json else print(_canary_line(cells(canary)))
    return 0


def _canary_line(canary: Json) -> str:
    begun = f"canary {canary['id']} ({canary['revision']}), {canary['percent']} %, by {canary['author']}"
    begun += f": {canary['reason']}"
    if canary["state"] == "running":
        return f"{begun}; running"
    return f"{begun}; {canary['state'].replace('_', ' ')} by {canary['ended_by']}: {canary['why']}"


def _arm(arm: Json) -> str:
    if arm["ratio"] is None:
        return "nothing"
    return f"{arm['ratio']:.1%} of {arm['count']} ({arm['low']:.1%} to {arm['high']:.1%})"


def diff_policies(options: argparse.Namespace) -> int:
    """Print the differences of two files, or of a file from a gateway's policy in force."""
    if options.new is None:
        with open_client(options, source=str(options.old)) as client:
            changes = client.call("POST", "policy/diff", {"document": _text(options.old)})["changes"]
    else:
        changes = _changes(options, options.old, options.new)
    print_json(changes) if options.json else _print_changes(cells(changes))
    return 0


def plan_policy(options: argparse.Namespace) -> int:
    """Print changes, blast radius and replay; return 1 when the document is invalid."""
    body = {"document": _text(options.file), "replay": not options.no_replay}
    with open_client(options, source=str(options.file)) as client:
        plan = client.call("POST", "policy/plan", body)
    if options.json:
        print_json(plan)
    elif not plan["ok"]:
        print(
            "\n".join(f"{options.file}:{item['line']}:{item['column']}: {item['message']}" for item in plan["problems"])
        )
    else:
        shown = cells(plan)
        _print_changes(shown["changes"])
        _print_blast(shown["blast_radius"])
        replay = shown["replay"]
        print(f"no replay: {shown['replay_why_not']}" if replay is None else "\n".join(replay_lines(replay)))
        if plan["proof"] is not None:
            print_proof(plan["proof"], str(options.file), mark="warning: ")
    return 0 if plan["ok"] else 1


def apply_policy(options: argparse.Namespace) -> int:
    """Apply a document after showing its changes and a confirmation."""
    _require_terminal(options)
    text, reason = _text(options.file), _reason(options)
    file = read_export(text)
    with open_client(options, source=str(options.file)) as client:
        etag = options.if_match or file.base or client.get("policy")["etag"]
        _confirmed(options, client, text)
        body = {"document": file.document, "reason": reason}
        with _ways_out(options, file):
            done = client.call("PUT", "policy", body, if_match=etag)
    _report(options, done)
    _rebase(options, file, done["etag"])
    return 0


def roll_back(options: argparse.Namespace) -> int:
    """Apply an older revision's document."""
    _require_terminal(options)
    reason = _reason(options)
    with open_client(options) as client:
        etag = options.if_match or client.get("policy")["etag"]
        document = client.get(f"policy/revisions/{options.revision}")["document"]
        _confirmed(options, client, document)
        body = {"revision": options.revision, "reason": reason}
        done = client.call("POST", "policy/rollback", body, if_match=etag)
    return _report(options, done)


def show_history(options: argparse.Namespace) -> int:
    """Print the revisions, one a line."""
    with open_client(options) as client:
        found = client.get(f"policy/revisions?limit={options.limit}")
        canaries = client.get("policy/canary")
        now = client.get("policy")
    if options.json:
        print_json({**found, "canaries": canaries["past"], "status": now["status"]})
        return 0
    if found["source"] == "file":
        print("the policy is a file; its history is wherever the file's is")
    status, newest = now["status"], now["revision"]
    if not status["is_current"]:
        print(f"warning: revision {status['revision']} is in force at this gateway: {one_line(status['error'])}")
    for line in cells(found["revisions"]):
        when = datetime.fromtimestamp(line["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        kind = f"{line['kind']} of {line['of']}" if line["of"] else line["kind"]
        is_refused = line["number"] == newest["number"] and line["revision"] != status["revision"]
        mark = "refused: " if is_refused else ""
        print(
            f"{line['number']:>5}  {line['revision']}  {when}Z  {line['author']:<12} {kind:<14} {mark}{line['reason']}"
        )
    canaries = cells(canaries)
    for canary in [*([canaries["canary"]] if canaries["canary"] else []), *canaries["past"]][: options.limit]:
        print(_canary_line(canary))
    return 0


def export_policy(options: argparse.Namespace) -> int:
    """Write the document to a file or to stdout."""
    with open_client(options) as client:
        path = "policy" if options.revision is None else f"policy/revisions/{options.revision}"
        found = client.get(path)
    etag, document = found["revision"]["etag"], found["document"]
    text = document if found.get("source") == "file" else exported(document, etag).render()
    if options.output is not None:
        _write(options.output, text, may_replace=True)
    if options.json:
        print_json({"revision": found["revision"], "document": document})
    elif options.output is None:
        sys.stdout.write(text)
    return 0


def init_policy(options: argparse.Namespace) -> int:
    """Write a first document; a file that exists is never overwritten."""
    starter = files("routing_policies") / "presets" / "starter.yaml"
    _write(options.file, starter.read_text(encoding="utf-8"), may_replace=False)
    if options.json:
        print_json({"file": str(options.file)})
        return 0
    print(f"{options.file}: written; review it, then: penstock policy check {shlex.quote(str(options.file))}")
    return 0


def import_policy(options: argparse.Namespace) -> int:
    """Convert a document; everything that needs a person's attention goes to stderr."""
    import yaml

    from routing_policies.policy.importing import ImportFailed, import_litellm

    try:
        found = import_litellm(_text(options.file))
    except ImportFailed as error:
        raise CommandError(f"{options.file}: {error}") from error
    text = yaml.safe_dump(found.document, sort_keys=False, allow_unicode=True, width=120)
    if options.output is not None:
        _write(options.output, text, may_replace=False)
    if options.json:
        print_json({"policy": found.document, "notes": found.notes})
        return 0
    if options.output is None:
        sys.stdout.write(text)
    print("\n".join(f"{options.file}: {note}" for note in found.notes), file=sys.stderr)
    return 0


@contextmanager
def _ways_out(options: argparse.Namespace, file: ExportedPolicy) -> Iterator[None]:
    """Name what to do next when another edit was faster than that of a file; raises CommandError."""
    try:
        yield
    except OutdatedEdit as error:
        source = f'{options.file} has the line "# revision {file.base}". ' if file.base and not options.if_match else ""
        raise CommandError(
            f"{error}\n{source}To keep both changes, run penstock policy export and make yours there; "
            f"to undo the other one, give --if-match {error.newest}."
        ) from None


def _rebase(options: argparse.Namespace, file: ExportedPolicy, etag: str) -> None:
    """Let the next edit of an exported file begin with the revision that it has just become."""
    try:
        if rebase_file(options.file, file, etag) and not options.json:
            print(f'{options.file}: its first line is "# revision {etag.strip(chr(34))}" now')
    except OSError as error:
        print(f"{options.file}: still has the line of revision {file.base} ({error.strerror})", file=sys.stderr)


def _confirmed(options: argparse.Namespace, client: AdminClient, document: str) -> None:
    """Show the plan of a change, and return when the user has agreed to it.

    Raises:
        CommandError: The policy is invalid, or the user declined.
        UsageError: No terminal is attached and `--yes` is missing.
    """
    plan = client.call("POST", "policy/plan", {"document": document, "replay": False})
    if not plan["ok"]:
        problems = [_rendered(getattr(options, "file", "policy"), problem) for problem in plan["problems"]]
        raise CommandError("\n".join(["the policy is no good, and nothing was changed", *problems]))
    if not options.json:
        shown = cells(plan)
        _print_changes(shown["changes"])
        _print_blast(shown["blast_radius"])
    if not options.yes and input("go ahead? [y/N] ").strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")


def _require_terminal(options: argparse.Namespace) -> None:
    """Raise UsageError where a confirmation is needed and nobody can give it."""
    if not options.yes and not sys.stdin.isatty():
        raise UsageError("no terminal to prompt; give --yes to go ahead, or see the changes with penstock policy plan")


def _report(options: argparse.Namespace, done: Json) -> int:
    if options.json:
        print_json(done)
    else:
        revision = done["revision"]
        print(f"revision {revision['number']} ({revision['revision']}) is in force")
    return 0


def _changes(options: argparse.Namespace, old: Path, new: Path) -> list[Json]:
    from gateway.cli.commands import settings
    from routing_policies.loading import load_policy
    from routing_policies.policy.diff import diff
    from routing_policies.policy.problems import PolicyError

    variables = settings(options).process.policy_variables
    try:
        sides = [load_policy(_text(path), source=str(path), variables=variables) for path in (old, new)]
    except PolicyError as error:
        raise CommandError(str(error)) from error
    return [change.as_json() for change in diff(*sides)]


def _print_changes(changes: list[Json]) -> None:
    marks = {"added": "+", "removed": "-", "changed": "~", "moved": "~"}
    for change in changes:
        print(f"{marks[change['kind']]} {change['text']}")
    if not changes:
        print("nothing changes")


def _print_blast(blast: Json) -> None:
    tenants = "every tenant" if blast["tenants"] == "all" else ", ".join(blast["tenants"]) or "no tenant"
    routes = ", ".join(blast["routes"]) or "none"
    share = blast["share_of_last_day"]
    traffic = "no traffic is known" if share is None else f"{share:.1%} of {blast['requests_last_day']} requests"
    known = f"known for {blast['known_for_s'] / 3600:.1f} h"
    print(f"reaches: {tenants}; routes: {routes}; last day: {traffic} ({known})")


def _rendered(source: Path | str, problem: Json) -> str:
    place = f"{source}:{problem['line']}:{problem['column']}: "
    return f"{place}{problem['path']}: {problem['message']}" if problem["path"] else f"{place}{problem['message']}"


def _reason(options: argparse.Namespace) -> str:
    reason: str = options.reason.strip()
    if not 1 <= len(reason) <= MAX_REASON_CHARS:
        raise UsageError(f"--reason: expected 1 to {MAX_REASON_CHARS} characters")
    return reason


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from error


def _write(path: Path, text: str, *, may_replace: bool) -> None:
    try:
        with path.open("w" if may_replace else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path}: there is one already; name another file") from error
    except OSError as error:
        raise CommandError(f"{path}: cannot be written ({error.strerror})") from error
