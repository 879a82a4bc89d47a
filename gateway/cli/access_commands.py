"""`penstock keys`, `tenants`, `admin` and `audit`: who may use a running gateway."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from gateway.cli import commands
from gateway.cli.actions import add_action, print_done
from gateway.cli.admin_client import open_client
from gateway.cli.commands import CommandError, UsageError
from gateway.cli.parsing.arguments import count, duration_s
from gateway.cli.parsing.command_parser import command_group
from gateway.cli.supervisor.console import cells

Json = dict[str, Any]
Command = Callable[[argparse.Namespace], int]

_OPTIONAL: Final = "with --store: calls without a key go on, as long as none is required yet"
_REQUIRED_ALREADY: Final = "Keys are required already; `penstock keys optional` ends that."


def add_keys(commands_of: Any) -> None:
    """Add the command `penstock keys`."""
    actions = _noun(commands_of, "keys", "API keys of tenants")
    new = add_action(actions, "new", new_key, "make a key and show it, once")
    new.add_argument("--tenant", required=True, metavar="ID", help="the tenant it will belong to")
    new.add_argument("--id", dest="key_id", metavar="ID", help="name of the key inside the tenant (default: today)")
    new.add_argument("--expires-in-s", type=duration_s, metavar="SECONDS", help="default: never")
    new.add_argument("--store", action="store_true", help="in a running gateway's store, good at once")
    listed = add_action(actions, "list", list_keys, "every key of a running gateway, by its name and state")
    listed.add_argument("--tenant", metavar="ID")
    rotate = add_action(actions, "rotate", rotate_key, "a new key instead of one, which stays valid for a while")
    revoke = add_action(actions, "revoke", revoke_key, "a key is good nowhere any more, within a second")
    for parser in (rotate, revoke):
        parser.add_argument("tenant")
        parser.add_argument("id")
    rotate.add_argument("--overlap-s", type=duration_s, default=86_400.0, metavar="SECONDS", help="default %(default)s")
    revoke.add_argument("--reason", default="", metavar="TEXT")
    revoke.add_argument(
        "--then",
        choices=["keyless", "nobody"],
        help="for the last key: who may call then, programs on this machine without a key or nobody",
    )
    new.add_argument("--optional", action="store_true", help=_OPTIONAL)
    require = add_action(actions, "require", require_keys, "from now on every call needs a key")
    optional = add_action(actions, "optional", make_keys_optional, "programs on this machine may call without a key")
    for parser in (require, optional):
        parser.add_argument("--reason", default="", metavar="TEXT")


def add_tenants(commands_of: Any) -> None:
    """Add the command `penstock tenants`."""
    actions = _noun(commands_of, "tenants", "tenants of the policy in force")
    add_action(actions, "list", list_tenants, "every tenant, its keys and its traffic of the last day")
    new = add_action(actions, "new", new_tenant, "add a tenant to the policy in force, as a revision of its own")
    new.add_argument("id")
    new.add_argument("--reason", required=True, metavar="TEXT", help="for those who read the history")


def add_admin(commands_of: Any) -> None:
    """Add the command `penstock admin`."""
    actions = _noun(commands_of, "admin", "who may log in at the admin page and API")
    create = add_action(actions, "create", create_admin, "make an admin; from the first one on, reading takes a login")
    create.add_argument("name")
    create.add_argument("--role", choices=["viewer", "editor", "admin"], default="admin", help="default %(default)s")
    create.add_argument("--password-stdin", action="store_true", help="read the password from stdin; default: prompt")
    create.add_argument("--oidc-subject", metavar="TEXT", help="as the identity provider has it; no password then")
    add_action(actions, "list", list_admins, "everybody who may log in")
    add_action(actions, "link", print_login_link, "print a login link for a browser on this machine; it works once")
    delete = add_action(actions, "delete", delete_admin, "end an admin's sessions and tokens, and the admin")
    delete.add_argument("name")


def add_audit(commands_of: Any) -> None:
    """Add the command `penstock audit`."""
    actions = _noun(commands_of, "audit", "the log of every change")
    listed = add_action(actions, "list", list_audit, "the last changes: who, what, why")
    listed.add_argument("--limit", type=count, default=20, metavar="N", help="default %(default)s")
    add_action(actions, "verify", verify_audit, "walk the chain of hashes; 1 when a line was changed or removed")


def new_key(options: argparse.Namespace) -> int:
    """Create a key in a gateway's store; without `--store`, print only the lines for the policy document."""
    if not options.store:
        if options.expires_in_s is not None:
            raise UsageError("--expires-in-s: needs --store; keys in the policy document do not expire")
        if options.optional:
            raise UsageError("--optional: needs --store; a key in the policy document is required from then on")
        return commands.keys_new(options)
    required = False if options.optional else None
    body = {
        "tenant": options.tenant,
        "id": options.key_id,
        "expires_in_s": options.expires_in_s,
        "required": required,
    }
    with open_client(options) as client:
        made = client.call("POST", "keys", {name: value for name, value in body.items() if value is not None})
    if options.optional and made["note"] is None:  # the API notes only what the first key changes
        made["note"] = _REQUIRED_ALREADY
    return _shown_once(options, made)


def rotate_key(options: argparse.Namespace) -> int:
    """Rotate a key and print the new one, which is shown once."""
    with open_client(options) as client:
        body = {"overlap_s": options.overlap_s}
        made = client.call("POST", f"keys/{options.tenant}/{options.id}/rotate", body)
    return _shown_once(options, made)


def revoke_key(options: argparse.Namespace) -> int:
    """Good nowhere any more."""
    with open_client(options) as client:
        body = {"reason": options.reason, **({"then": options.then} if options.then else {})}
        done = client.call("POST", f"keys/{options.tenant}/{options.id}/revoke", body)
    return print_done(options, done, f"{options.tenant}/{options.id} is revoked")


def require_keys(options: argparse.Namespace) -> int:
    """Refuse calls without a key from now on."""
    return _decide(options, is_required=True)


def make_keys_optional(options: argparse.Namespace) -> int:
    """Serve programs on this machine without a key again."""
    return _decide(options, is_required=False)


def _decide(options: argparse.Namespace, *, is_required: bool) -> int:
    with open_client(options) as client:
        done = client.call("POST", "keys/requirement", {"required": is_required, "reason": options.reason})
    words = "every call needs a key" if is_required else "programs on this machine may call without a key"
    return print_done(options, done, f"{words}; {done['num_usable']} keys work")


def list_keys(options: argparse.Namespace) -> int:
    """Print the keys, one a line."""
    with open_client(options) as client:
        found = client.get("keys" + (f"?tenant={options.tenant}" if options.tenant else ""))
    rows = [
        f"{key['tenant']:<20} {key['id']:<24} {_state(key):<9} {key['source']:<9} {_when(key['expires_at'])}"
        for key in cells(found["keys"])
    ]
    return print_done(options, found, "\n".join(rows) or "there are no keys")


def list_tenants(options: argparse.Namespace) -> int:
    """Print the tenants, one a line."""
    with open_client(options) as client:
        found = client.get("tenants")
    rows = [
        f"{item['id']:<20} keys: {item['keys']['document']} in the document, "
        f"{item['keys']['store']} usable in the store; {item['requests_last_day']} requests in the last day"
        for item in cells(found["tenants"])
    ]
    return print_done(options, found, "\n".join(rows) or "the policy names no tenants")


def new_tenant(options: argparse.Namespace) -> int:
    """Apply a revision that adds a tenant."""
    with open_client(options) as client:
        etag = client.get("policy")["etag"]
        done = client.call("POST", "tenants", {"id": options.id, "reason": options.reason}, if_match=etag)
    return print_done(options, done, f"tenant {options.id} is in revision {done['revision']['number']}")


def create_admin(options: argparse.Namespace) -> int:
    """Create an admin; the local token may also create the first one."""
    if options.oidc_subject and options.password_stdin:
        raise UsageError("--password-stdin: an admin of the identity provider has no password here")
    body: Json = {"name": options.name, "role": options.role}
    with open_client(options) as client:  # before the prompt: nobody types a password for nothing
        known = client.get("admins")["admins"]
        if options.name in {admin["name"] for admin in known}:
            raise CommandError(f"{options.name} is an admin already; penstock admin list shows all")
        if options.oidc_subject:
            body["oidc_subject"] = options.oidc_subject
        else:
            body["password"] = _password(options)
        made = client.call("POST", "admins", body)
    return print_done(options, made, f"{options.name} is {made['role']}, and can log in at /admin/login")


def list_admins(options: argparse.Namespace) -> int:
    """Print the admins, one a line."""
    with open_client(options) as client:
        found = client.get("admins")
    rows = [f"{admin['name']:<24} {admin['role']}" for admin in cells(found["admins"])]
    return print_done(
        options,
        found,
        "\n".join(rows) or "there are none: programs on this machine may read",
    )


def print_login_link(options: argparse.Namespace) -> int:
    """Print a new login link with the rights of the admin token."""
    with open_client(options) as client:
        if client.shown.startswith("unix:"):
            raise CommandError("browsers cannot open a Unix socket; set admin.listen to 127.0.0.1 and a port")
        made = client.call("POST", "login/links", {})
        link = client.shown + made["path"]
    minutes = made["expires_in_s"] / 60
    return print_done(options, {**made, "url": link}, f"{link}\nworks once, within {minutes:.0f} minutes")


def delete_admin(options: argparse.Namespace) -> int:
    """Sessions and tokens end with it."""
    with open_client(options) as client:
        done = client.call("DELETE", f"admins/{options.name}")
    return print_done(options, done, f"{options.name} is no admin any more")


def list_audit(options: argparse.Namespace) -> int:
    """Print the audit log, one change a line, newest first."""
    with open_client(options) as client:
        found = client.get(f"audit?newest=true&limit={options.limit}")
    rows = [
        f"{item['seq']:>5}  {_when(item.get('at'))}  {item.get('author', ''):<12} {item['action']:<16} "
        f"{item.get('target', '')}  {item.get('reason', '')}".rstrip()
        for item in cells(found["entries"])
    ]
    return print_done(options, found, "\n".join(rows) or "nothing was changed yet")


def verify_audit(options: argparse.Namespace) -> int:
    """Verify the audit log; return 1 when its chain is broken."""
    with open_client(options) as client:
        found = client.get("audit/verify")
    message = f"{found['num_entries']} lines, unbroken; newest hash {found['head']}"
    if not found["ok"]:
        message = f"line {found['broken_at']} was changed, or one before it removed"
    print_done(options, found, message)
    return 0 if found["ok"] else 1


def _noun(commands_of: Any, name: str, message: str) -> Any:
    parser: argparse.ArgumentParser = commands_of.add_parser(name, help=message)
    return command_group(parser)


def _shown_once(options: argparse.Namespace, made: Json) -> int:
    message = f"key {made['id']} for {made['tenant']}, shown this once:\n\n  {made['key']}\n"
    return print_done(options, made, message + (f"\n{made['note']}" if made["note"] else ""))


def _password(options: argparse.Namespace) -> str:
    if options.password_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise UsageError("no terminal to prompt for a password; give --password-stdin")
    password = getpass.getpass(f"password of {options.name}: ")
    if getpass.getpass("again: ") != password:
        raise CommandError("the two are different; nothing was changed")
    return password


def _state(key: Json) -> str:
    """Return the state of a key; one that only lacks its tenant in the policy in force works for nobody."""
    return "no tenant" if key["state"] in ("active", "expiring") and not key["has_tenant"] else str(key["state"])


def _when(at: float | None) -> str:
    return "-" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"
