"""AdminClient: the admin API as commands use it; every refusal becomes a CommandError in the API's own words."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.access.local_token import FILE_NAME, read_token
from gateway.cli.commands import CommandError, UsageError, settings
from gateway.cli.supervisor.console import cells

if TYPE_CHECKING:
    import ssl

    import httpx

    from gateway.config.settings import GatewayConfig

TIMEOUT_S: Final = 90.0
"""Timeout of one request: a plan over many recorded requests takes a while."""

START_REMEDY: Final = "start one with penstock up, or name the folder of one that runs with --runtime-dir"

_COMMANDS: Final = {
    "GET /admin/api/keys lists": "penstock keys list shows",
    "GET /admin/api/policy/revisions lists": "penstock policy history shows",
    "GET /v1/models lists what this key may use": "penstock policy show has every route",
    'send "then": "keyless" (programs on this machine call without a key) or "nobody"': (
        "give --then keyless (programs on this machine call without a key) or --then nobody"
    ),
    "GET /v1/models lists what it may use": "penstock tenants list and penstock policy show have what it may use",
}
"""Requests in the API's messages, and the commands that do the same."""

Json = dict[str, Any]


class OutdatedEdit(CommandError):
    """Error for a change that was made on an older revision than the newest one."""

    def __init__(self, message: str, newest: str) -> None:
        super().__init__(message)
        self.newest = newest
        """Entity tag of the newest revision, without quotes."""


class AdminClient:
    """One command's connection; use it as a context manager."""

    def __init__(self, client: httpx.Client, *, shown: str, remedy: str = START_REMEDY, source: str = "policy") -> None:
        """Connect to an admin listener.

        Args:
            client: The connection.
            shown: The listener's address in messages.
            remedy: What to do when no gateway answers there.
            source: Name of the document in problems that the gateway reports.
        """
        self._client = client
        self.shown = shown
        """Address of the listener: a URL, or `unix:` and a path."""
        self._remedy = remedy
        self._source = source

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Json:
        """Send a GET request and return the JSON object."""
        return self.call("GET", path)

    def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        if_match: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Json:
        """Send one request and return the JSON object.

        Raises:
            OutdatedEdit: `if_match` names no longer the newest revision.
            CommandError: The gateway refused it, with its message, or did not answer.
        """
        import httpx

        headers = {} if if_match is None else {"if-match": if_match}
        try:
            reply = self._client.request(method, f"/admin/api/{path}", json=body, headers=headers, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise CommandError(self._unreachable(str(error))) from error
        try:
            answer: Json = reply.json()
        except ValueError:
            message = f"{self.shown} answers {reply.status_code} and no JSON; --url names the admin listener"
            raise CommandError(message) from None
        if reply.is_error:
            raise self._refusal(cells(answer.get("error", {})), reply.status_code)
        return answer

    def _unreachable(self, reason: str) -> str:
        return f"no gateway answers at {self.shown} ({reason}); {self._remedy}"

    def _refusal(self, error: Json, status: int) -> CommandError:
        problems = [
            f"{self._source}:{found['line']}:{found['column']}: "
            + (f"{found['path']}: {found['message']}" if found["path"] else found["message"])
            for found in error.get("problems", ())
        ]
        conflict = error.get("conflict", {})
        changes = [f"  {change['text']}" for change in conflict.get("changes", ())]
        message = "the policy is no good, and nothing was changed" if problems else _in_commands(error, status)
        lines = [message, *problems, *(["what was changed meanwhile:", *changes] if changes else [])]
        if conflict:
            return OutdatedEdit("\n".join(lines), conflict["theirs"]["etag"].strip('"'))
        return CommandError("\n".join(lines))


def _in_commands(error: Json, status: int) -> str:
    """Return an error's message with commands where the API names its own endpoints."""
    message = str(error.get("message", status))
    for endpoint, command in _COMMANDS.items():
        message = message.replace(endpoint, command)
    return f"{message} Give another token with --token-file." if error.get("code") == "not_logged_in" else message


def open_client(options: argparse.Namespace, *, source: str = "policy") -> AdminClient:
    """Open a client for the gateway that `--url` names, else for the one in the runtime directory.

    Raises:
        CommandError: No gateway runs there.
        UsageError: The token or an argument is wrong.
    """
    return client_of(settings(options), url=options.url, token_file=options.token_file, source=source)


def client_of(
    config: GatewayConfig, *, url: str | None = None, token_file: Path | None = None, source: str = "policy"
) -> AdminClient:
    """Open a client for the gateway at `url`, else for the one in the runtime directory; raises as `open_client`."""
    import httpx

    from gateway.cli.supervisor.probe import base_url_of
    from gateway.config.running import running_product

    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"--url: expected one such as http://127.0.0.1:8081, got {url!r}")
    running = running_product(config.process.runtime_dir)
    listen, tls_cert = (config.admin.listen, config.admin.tls_cert) if running is None else running.admin_listener
    token = _token(token_file, config, is_expected=bool(url) or running is not None)
    is_socket = listen.startswith("unix:") and not url
    transport = httpx.HTTPTransport(uds=listen.removeprefix("unix:")) if is_socket else None
    base_url = url or ("http://localhost" if is_socket else base_url_of(listen, is_tls=tls_cert is not None))
    try:
        client = httpx.Client(
            base_url=base_url,
            headers={"authorization": f"Bearer {token}"},
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=False,
            verify=_verification(None if url else tls_cert),
        )
    except httpx.InvalidURL as error:
        raise UsageError(f"--url: {error}; expected one such as http://127.0.0.1:8081") from error
    remedy = "check --url, or leave it out for what runs in --runtime-dir" if url else START_REMEDY
    return AdminClient(client, shown=listen if is_socket else base_url, remedy=remedy, source=source)


def _verification(tls_cert: Path | None) -> ssl.SSLContext:
    """Return the context that trusts a listener's own certificate, or without one the system's authorities."""
    import ssl

    from gateway.http.certificate import CertificateError, pinning_context

    try:
        return ssl.create_default_context() if tls_cert is None else pinning_context(tls_cert)
    except CertificateError as error:
        raise UsageError(f"admin.{error}") from error


def _token(token_file: Path | None, config: GatewayConfig, *, is_expected: bool) -> str:
    """Return the API token; without one, `is_expected` tells whether a gateway runs that should have made it."""
    path: Path = token_file or config.admin.token_file or config.process.runtime_dir / FILE_NAME
    try:
        return read_token(path)
    except FileNotFoundError as error:
        if token_file is None and not is_expected:
            raise CommandError(f"no penstock runs in {config.process.runtime_dir}; {START_REMEDY}") from error
        message = f"{path}: there is no such file; give --token-file with an API token, or --runtime-dir"
        raise UsageError(message) from error
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); give --token-file with an API token, or --runtime-dir"
        raise UsageError(message) from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Flags of every command that talks to a gateway."""
    group = parser.add_argument_group("the gateway")
    group.add_argument("--url", metavar="URL", help="its admin listener (default: that of what runs in RUNTIME_DIR)")
    group.add_argument("--token-file", type=Path, metavar="FILE", help=f"API token (default: RUNTIME_DIR/{FILE_NAME})")
    group.add_argument("--config", type=Path, metavar="FILE", help="settings (default: penstock.toml if it exists)")
    group.add_argument("--runtime-dir", type=Path, metavar="DIR", help="of the gateway (default: ./run)")
    group.add_argument("--json", action="store_true", help="machine-readable")
