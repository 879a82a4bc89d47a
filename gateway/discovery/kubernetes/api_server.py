"""KubernetesApi: requests to the API server with the account's token, which is read anew as it rotates."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from gateway.discovery.source import SourceError

ACCOUNT_DIR: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesAccess:
    """Address of the API server, and the files of the account."""

    url: str
    token_file: Path | None
    ca_file: Path | None

    @classmethod
    def of(
        cls,
        environment: Mapping[str, str],
        *,
        url: str = "",
        token_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> KubernetesAccess:
        """Return the access that settings name, else that of a pod's service account.

        Raises:
            SourceError: This process runs outside a cluster, and no URL is set.
        """
        if url:
            return cls(url=url.rstrip("/"), token_file=token_file, ca_file=ca_file)
        host = environment.get(_HOST, "")
        if not host:
            raise SourceError("this process is in no Kubernetes pod; set process.discovery.kubernetes_url")
        name = f"[{host}]" if ":" in host else host
        return cls(
            url=f"https://{name}:{environment.get(_PORT, '443')}",
            token_file=token_file or ACCOUNT_DIR / "token",
            ca_file=ca_file or ACCOUNT_DIR / "ca.crt",
        )


class KubernetesApi:
    """Requests with the credentials of a KubernetesAccess."""

    def __init__(self, access: KubernetesAccess, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Create a client; raises SourceError when the authority's file cannot be read."""
        self._access = access
        self.client = httpx.AsyncClient(
            base_url=access.url,
            verify=self._context(),
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=False,
            transport=transport,
        )

    def request(self, path: str, parameters: Mapping[str, str], *, read_timeout_s: float) -> httpx.Request:
        """Return a GET request; a token file is read each time, because kubelet replaces its content.

        Raises:
            SourceError: The token cannot be read.
        """
        timeout = httpx.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S)
        return self.client.build_request("GET", path, params=dict(parameters), headers=self._headers(), timeout=timeout)

    def _headers(self) -> dict[str, str]:
        path = self._access.token_file
        if path is None:
            return {"accept": "application/json"}
        try:
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{path}: the token cannot be read ({type(error).__name__})") from None
        if not token or not token.isprintable() or " " in token:
            raise SourceError(f"{path} holds no token")
        return {"accept": "application/json", "authorization": f"Bearer {token}"}

    def _context(self) -> ssl.SSLContext:
        path = self._access.ca_file
        try:
            return ssl.create_default_context(cafile=None if path is None else str(path))
        except (OSError, ssl.SSLError) as error:
            raise SourceError(f"{path}: the authority's certificate cannot be read ({error})") from error
