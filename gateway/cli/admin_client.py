"""AdminClient: the admin API as commands use it; every refusal becomes a CommandError in the API's own words."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.access.local_token import FILE_NAME, read_token
from gateway.cli.commands import CommandError, UsageError, settings

if TYPE_CHECKING:
    import httpx

TIMEOUT_S: Final = 90.0
"""Timeout of one request: a plan over many recorded requests takes a while."""

Json = dict[str, Any]


class AdminClient:
    """One command's connection; use it as a context manager."""

    def __init__(self, client: httpx.Client, *, source: str = "policy") -> None:
        """Connect to an admin listener; `source` names the document in problems that the gateway reports."""
        self._client = client
        self._source = source

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Json:
        """Send a GET request and return the JSON object."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Json | None = None, *, if_match: str | None = None) -> Json:
        """Send one request and return the JSON object. Raises CommandError with the gateway's message."""
        import httpx

        headers = {} if if_match is None else {"if-match": if_match}
        try:
            reply = self._client.request(method, f"/admin/api/{path}", json=body, headers=headers)
        except httpx.HTTPError as error:
            message = f"no gateway answers at {self._client.base_url} ({error}); start one, or name it with --url"
            raise CommandError(message) from error
        try:
            answer: Json = reply.json()
        except ValueError:
            message = f"{self._client.base_url} answers {reply.status_code} and no JSON; --url names the admin listener"
            raise CommandError(message) from None
        if reply.is_error:
            raise CommandError(self._explained(answer.get("error", {}), reply.status_code))
        return answer

    def _explained(self, error: Json, status: int) -> str:
        problems = [
            f"{self._source}:{found['line']}:{found['column']}: "
            + (f"{found['path']}: {found['message']}" if found["path"] else found["message"])
            for found in error.get("problems", ())
        ]
        conflict = [f"  {change['text']}" for change in error.get("conflict", {}).get("changes", ())]
        message = "the policy is no good, and nothing was changed" if problems else str(error.get("message", status))
        return "\n".join([message, *problems, *(["what was changed meanwhile:", *conflict] if conflict else [])])


def open_client(options: argparse.Namespace, *, source: str = "policy") -> AdminClient:
    """Open a client for the gateway that `--url` names, else for that of the settings. Raises UsageError."""
    import ssl

    import httpx

    from gateway.cli.supervisor.probe import base_url_of
    from gateway.http.certificate import CertificateError, pinning_context

    config = settings(options)
    path: Path = options.token_file or config.admin.token_file or config.process.runtime_dir / FILE_NAME
    try:
        token = read_token(path)
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); give --token-file with an API token, or --runtime-dir"
        raise UsageError(message) from error
    except ValueError as error:
        raise UsageError(str(error)) from error
    listen = config.admin.listen
    transport = (
        httpx.HTTPTransport(uds=listen.removeprefix("unix:"))
        if listen.startswith("unix:") and not options.url
        else None
    )
    tls_cert = config.admin.tls_cert
    try:
        verify = ssl.create_default_context() if options.url or tls_cert is None else pinning_context(tls_cert)
    except CertificateError as error:
        raise UsageError(f"admin.{error}") from error
    url = options.url or ("http://localhost" if transport else base_url_of(listen, is_tls=tls_cert is not None))
    headers = {"authorization": f"Bearer {token}"}
    client = httpx.Client(
        base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport, trust_env=False, verify=verify
    )
    return AdminClient(client, source=source)


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Flags of every command that talks to a gateway."""
    group = parser.add_argument_group("the gateway")
    group.add_argument("--url", metavar="URL", help="its admin listener (default: admin.listen of the settings)")
    group.add_argument("--token-file", type=Path, metavar="FILE", help=f"API token (default: RUNTIME_DIR/{FILE_NAME})")
    group.add_argument("--config", type=Path, metavar="FILE", help="settings (default: penstock.toml if it exists)")
    group.add_argument("--runtime-dir", type=Path, metavar="DIR", help="of the gateway (default: ./run)")
    group.add_argument("--json", action="store_true", help="machine-readable")
