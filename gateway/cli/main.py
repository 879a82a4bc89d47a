"""`penstock`: every command, and which function runs it. Imports only what the chosen command needs.

Exit codes: 0 it worked, 1 it did not, 2 a setting or an argument is wrong.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import access_commands, commands, observe, policy_commands, policy_file_commands
from gateway.cli.actions import add_action
from gateway.cli.admin_client import add_connection
from gateway.cli.parsing.arguments import count, duration_s, ratio
from gateway.cli.parsing.command_parser import EXIT_USAGE, CommandListFormatter, CommandParser, command_group
from gateway.cli.workers import MACHINE_PROCESS
from gateway.util.version import version

if TYPE_CHECKING:
    from gateway.config.settings import GatewayConfig

EXIT_FAILED = 1

Command = Callable[[argparse.Namespace], int]

_EPILOG = """\
begin with:  penstock up, then penstock top; penstock COMMAND --help lists a command's flags
settings:    penstock.toml, then PENSTOCK_* variables, then flags; a later one wins
exit codes:  0 it worked, 1 it did not, 2 a setting or an argument is wrong"""
_MODEL = (
    "a folder, a GGUF file, org/name or org/name:file.gguf of the hub, a name of penstock models list, or "
    "the URL of a server that runs (URL#MODEL where it has several)"
)
CHECK_NAMES = ("exact", "contains", "regex", "number")
_OUTCOMES_EPILOG = """\
a line of prompts has `prompt`, or `messages` as a chat request has them. `answer` is the right
answer, or a list of them; a check needs it. `category` names the kind of work, where you know it:
  {"prompt": "What is 17 * 3?", "answer": 51, "category": "sums"}
  {"messages": [{"role": "user", "content": "Capital of France?"}], "answer": ["Paris"]}

checks:
  exact     the whole answer, without regard to case and marks around it
  contains  the right answer stands in it, as whole words
  regex     `answer` is a Python pattern that is found in it
  number    the last number in it, in any notation

example, with two servers and then the training, which needs 200 outcomes:
  penstock policy outcomes --prompts prompts.jsonl --small http://localhost:8001#little \\
    --large http://localhost:8002#big --check contains --out outcomes.jsonl
  penstock policy train --data outcomes.jsonl --weak little --strong big --out pair.json

Nothing is sent before you confirm the estimate of the cost. A run that ended goes on with the same
command; exit code 1 says that some prompts failed, which the same command repeats."""
_ALSO_SPELLED = {"help": "--help", "version": "--version"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; errors are one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    # These hand everything after their name to another program, --help included.
    if arguments[:1] == ["engine"]:
        return guarded(lambda: commands.run_engine(arguments[1:]))
    if arguments[:1] == ["bench"]:
        return guarded(lambda: commands.run_bench(arguments[1:]))
    if arguments[:1] == ["models"]:
        return guarded(lambda: commands.run_models(arguments[1:]))
    if arguments[:1] == [MACHINE_PROCESS]:
        return guarded(lambda: _run_machine_process(arguments[1]))
    if arguments and arguments[0] in _ALSO_SPELLED:
        arguments = [*arguments[1:], _ALSO_SPELLED[arguments[0]]]
    return guarded(lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    parser = build_parser()
    if not arguments:
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    command: Command = options.command
    return command(options)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = CommandParser(
        prog="penstock",
        description="One chat endpoint: a latency-aware gateway in front of a decode engine that comes with it.",
        epilog=_EPILOG,
        formatter_class=CommandListFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock {version()}")
    commands_of = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=CommandParser)
    _add_up(commands_of)
    _add_gateway(commands_of)
    commands_of.add_parser("engine", help="serve one model over HTTP (see penstock engine --help)", add_help=False)
    commands_of.add_parser("models", help="list, pull, rm or info: the models on this machine", add_help=False)
    _add_policy(commands_of)
    for add in (access_commands.add_keys, access_commands.add_tenants, access_commands.add_admin):
        add(commands_of)
    access_commands.add_audit(commands_of)
    _add_doctor(commands_of)
    _add_wait(commands_of)
    for add in (observe.add_diagnose, observe.add_explain, observe.add_replay, observe.add_top, observe.add_capacity):
        add(commands_of)
    _add_ray(commands_of)
    commands_of.add_parser("bench", help="run one benchmark from a source checkout: bench NAME …", add_help=False)
    _add_completion(commands_of)
    return parser


def _add_ray(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    sub = command_group(commands_of.add_parser("ray", help="engines under Ray Serve"))
    one = sub.add_parser("deploy", help="deploy the engine on a Ray cluster, beside its other applications")
    one.add_argument("--dashboard", metavar="URL", default="http://127.0.0.1:8265", help="dashboard of the cluster")
    one.add_argument("--model", required=True, metavar="MODEL", help="as for `penstock engine`, on every node")
    one.add_argument("--name", default="engine", help="name of the application")
    one.add_argument("--min-replicas", type=count, default=1, metavar="N", help="least number of replicas")
    one.add_argument("--max-replicas", type=count, default=4, metavar="N", help="largest number of replicas")
    one.add_argument("--target-wait-s", type=float, default=0.5, metavar="S", help="queue wait that adds replicas")
    one.add_argument("--tensor-parallel", type=count, default=1, metavar="N", help="ranks of one replica, on one node")
    one.add_argument("--gpus-per-rank", type=float, default=0.0, metavar="N", help="1 on GPU nodes, 0 on CPU nodes")
    one.add_argument("--cpus", type=float, default=1.0, metavar="N", help="CPUs of one replica")
    one.add_argument("--working-dir", metavar="URI", help="zip file of a checkout; without it the nodes' image has one")
    one.add_argument("--port", type=count, default=8000, metavar="N", help="port of the proxies, where none runs yet")
    one.add_argument("--wait-s", type=float, default=900.0, metavar="S", help="longest wait until it runs; 0: none")
    one.set_defaults(command=commands.ray_deploy)


def _add_completion(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    parser = commands_of.add_parser("completion", help="print a script that completes commands, flags and values")
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="source <(penstock completion bash)")
    parser.set_defaults(command=_print_completion)


def _print_completion(options: argparse.Namespace) -> int:
    from gateway.cli.parsing.command_tree import command_tree
    from gateway.cli.parsing.completion import completion_script

    sys.stdout.write(completion_script(command_tree(build_parser()), options.shell))
    return 0


def _add_up(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    parser = commands_of.add_parser("up", help="start everything on this machine and print a first request")
    parser.add_argument("--model", metavar="MODEL", help=f"the one model to serve: {_MODEL}")
    parser.add_argument(
        "--small", metavar="MODEL", help="the small model of a pair, which begins every answer; the same"
    )
    parser.add_argument(
        "--large", metavar="MODEL", help="the large one, which takes over where the small one is unsure"
    )
    _add_settings(parser)
    parser.set_defaults(command=commands.up)


def _add_gateway(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    parser = commands_of.add_parser("gateway", help="start the gateway alone; the policy names its upstreams")
    _add_settings(parser)
    parser.set_defaults(command=_run_gateway)


def _add_policy(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    parser = commands_of.add_parser("policy", help="check, compare, change and roll back policies")
    actions = command_group(parser)
    check = actions.add_parser("check", help="check a policy and run the tests inside it; 1 when it is not good")
    check.add_argument("--format", choices=["text", "json"], default="text", help="default %(default)s")
    check.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    check.set_defaults(command=policy_file_commands.policy_check)
    prove = actions.add_parser(
        "prove",
        help="prove a policy for all requests, or print requests that show the contrary; 1 when it is not proven",
    )
    prove.add_argument("--json", action="store_true", help="machine-readable")
    prove.set_defaults(command=policy_file_commands.policy_prove)
    show = add_action(
        actions, "show", policy_file_commands.policy_show, "print a policy with every default filled in, and its routes"
    )
    show.add_argument(
        "file", nargs="?", type=Path, help="default: the policy in force of a running gateway, else the configured one"
    )
    for action in (check, prove):
        action.add_argument("file", nargs="?", type=Path, help="default: the configured policy, else the bundled one")
        _add_config(action)
    schema = actions.add_parser("schema", help="print the JSON Schema of policies, for editors")
    schema.add_argument("--json", action="store_true", help="it always is")
    schema.set_defaults(command=policy_file_commands.policy_schema)
    policy_commands.add_policy_life(actions)
    _add_outcomes(actions)
    _add_train(actions)


def _add_outcomes(actions: argparse._SubParsersAction[CommandParser]) -> None:
    """Add the command to those of policies."""
    parser = actions.add_parser(
        "outcomes",
        help="compare two models on prompts, for policy train and bench routing",
        description="Send prompts to two models, score both answers, and write one line of outcomes for each prompt.",
        epilog=_OUTCOMES_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    server = "a deployment of the gateway that runs, or the URL of a server (URL#MODEL where it has several)"
    parser.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="one JSON object a line, as below")
    parser.add_argument("--small", required=True, metavar="MODEL", help=server)
    parser.add_argument("--large", required=True, metavar="MODEL", help="the one it is compared with; the same")
    scorer = parser.add_mutually_exclusive_group(required=True)
    scorer.add_argument("--check", choices=CHECK_NAMES, help="how an answer compares with `answer`, as below")
    scorer.add_argument("--judge", metavar="MODEL", help="a model that compares both answers, in both orders; the same")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="file of outcomes; an earlier run goes on"
    )
    parser.add_argument("--max-tokens", type=count, default=512, metavar="N", help="of an answer (default %(default)s)")
    parser.add_argument(
        "--concurrency", type=count, default=4, metavar="N", help="prompts at once (default %(default)s)"
    )
    parser.add_argument("--limit", type=count, metavar="N", help="compare the first N prompts only")
    parser.add_argument("--key-env", metavar="NAME", help="environment variable with the API key of the servers")
    for role in ("small", "large", "judge"):
        parser.add_argument(f"--{role}-key-env", metavar="NAME", help=f"the same for the server of --{role} alone")
        parser.add_argument(
            f"--{role}-prices",
            metavar="IN,OUT",
            help="cost of a million prompt and completion tokens",
        )
    parser.add_argument("--yes", "-y", action="store_true", help="do not prompt for the estimate")
    add_connection(parser)
    parser.set_defaults(command=_policy_outcomes)


def _policy_outcomes(options: argparse.Namespace) -> int:
    from gateway.cli.outcomes_command import policy_outcomes

    return policy_outcomes(options)


def _add_train(actions: argparse._SubParsersAction[CommandParser]) -> None:
    parser = actions.add_parser("train", help="learn from outcomes which prompts a small model answers well")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, nargs="+", metavar="FILE", help="JSON lines with outcomes")
    source.add_argument(
        "--from-gateway", action="store_true", help="outcomes of a gateway's own audits, shadows and feedback"
    )
    parser.add_argument("--weak", metavar="MODEL", help="the smaller model, as deployments name it")
    parser.add_argument("--strong", metavar="MODEL", help="the one it is compared with")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the coefficients go")
    parser.add_argument("--embed", action="store_true", help="learn from the embedding of each prompt too")
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument(
        "--max-loss",
        type=ratio,
        metavar="SHARE",
        help="choose cascade thresholds that lose at most this share of the large model's score, 0.01 for 1 %%",
    )
    goal.add_argument(
        "--large-share", type=ratio, metavar="SHARE", help="choose cascade thresholds for this share of large calls"
    )
    add_connection(parser)
    parser.set_defaults(command=policy_file_commands.policy_train)


def _add_doctor(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    parser = commands_of.add_parser("doctor", help="check this machine and installation; 1 when something must change")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    _add_settings(parser)
    parser.set_defaults(command=commands.doctor)


def _add_wait(commands_of: argparse._SubParsersAction[CommandParser]) -> None:
    parser = commands_of.add_parser("wait", help="wait until a server answers a GET with 200; 1 when it does not")
    parser.add_argument("url", metavar="URL", help="such as http://127.0.0.1:8080/readyz")
    parser.add_argument(
        "--timeout-s", type=duration_s, default=60.0, metavar="S", help="longest wait (default %(default)s)"
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="the server's certificate, where it is its own")
    parser.set_defaults(command=commands.wait_ready)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """Flags of the settings that change from one start to the next; the rest belongs into a file."""
    _add_config(parser)
    parser.add_argument("--policy", type=Path, metavar="FILE", help="the policy (default: the bundled one)")
    parser.add_argument(
        "--workers", type=count, metavar="N", help="gateway processes (default: by the cores, at most 8)"
    )
    parser.add_argument("--port", type=_port, metavar="N", help="public port, host as configured (default 8080)")
    parser.add_argument("--admin-port", type=_port, metavar="N", help="admin port, host as configured (default 8081)")
    parser.add_argument("--public-listen", metavar="ADDRESS", help="host:port, [v6]:port or unix:/path")
    parser.add_argument("--admin-listen", metavar="ADDRESS", help="the same, for operators")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], help="default info")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (default: penstock.toml if it exists)")
    parser.add_argument("--runtime-dir", type=Path, metavar="DIR", help="sockets and pid file (default: ./run)")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text}")
    return int(text)


def _run_gateway(options: argparse.Namespace) -> int:
    # Imports are inside: a supervisor of workers serves nothing itself, and does without what that takes.
    def serve(config: GatewayConfig) -> Coroutine[None, None, int]:
        from gateway.app.serving import run_gateway

        return run_gateway(config)

    def supervise(config: GatewayConfig, num_workers: int) -> int:
        from gateway.app.supervision import run_workers

        return run_workers(config, num_workers)

    return commands.gateway(options, serve, supervise)


def _run_machine_process(text: str) -> int:
    """Run one process of a gateway with workers; its supervisor starts it, never a person."""
    import msgspec

    from gateway.app.serving import run_machine_process
    from gateway.machine.process import MachineProcessSpec

    spec = msgspec.json.decode(text, type=MachineProcessSpec)
    return commands.gateway(argparse.Namespace(config=None), partial(run_machine_process, spec))


def _print_anything() -> None:
    """Show as an escape what the terminal's encoding lacks, such as in a folder's name, in place of failing at it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def guarded(command: Callable[[], int]) -> int:
    """Turn errors that an operator can fix into one line and an exit code; a defect of ours shows its trace."""
    try:
        code = command()
        if sys.stdout is not None:  # None: it was closed before the start
            sys.stdout.flush()
        return code
    except commands.UsageError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return EXIT_USAGE
    except commands.CommandError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough; without this Python complains again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"penstock: the output cannot be written ({error.strerror})", file=sys.stderr)
        return EXIT_FAILED
