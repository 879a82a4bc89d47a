"""A small hub on this machine: the part of its API that a download uses, over real sockets."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final
from urllib.parse import unquote, urlsplit

TOKEN: Final = "hf_a_token_of_the_test"
_LFS: Final = (".safetensors", ".gguf")
_API: Final = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/(?P<kind>revision|tree)/(?P<revision>[^/?]+)/?")
_FILE: Final = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


@dataclass(frozen=True, slots=True)
class Repository:
    """One model: its files at one commit, with the names of that commit."""

    files: Mapping[str, bytes]
    revisions: tuple[str, ...] = ("main",)
    is_gated: bool = False
    is_private: bool = False

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()


@dataclass(slots=True)
class HubServer:
    """Serves repositories by name, and remembers what was requested."""

    repositories: dict[str, Repository]
    requests: list[str] = field(default_factory=list)
    cut_after: int | None = None
    """Bytes of a weights file after which the connection breaks; None: it does not."""
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> HubServer:
        hub = self

        class Handler(_Handler):
            server_of = hub

        # Weights come from another host than the rest, as they do from a real hub.
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def downloaded(self) -> list[str]:
        """Names of the files whose content was sent, in order of their names."""
        found = (_FILE.fullmatch(each.removeprefix("GET ")) for each in self.requests if each.startswith("GET "))
        return sorted({match["file"] for match in found if match})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: HubServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server_of.requests.append(f"{self.command} {path}")
        if path.startswith("/cdn/"):
            self._send_content(path.removeprefix("/cdn/"))
        elif match := _API.fullmatch(path):
            self._api(match)
        elif match := _FILE.fullmatch(path):
            self._file(match)
        else:
            self._refuse(404, "EntryNotFound", "no such page")

    def _found(self, match: re.Match[str]) -> Repository | None:
        """Return the repository, or None once the refusal was sent."""
        repository = self.server_of.repositories.get(match["repo"])
        is_known = self.headers.get("authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.is_private and not is_known):
            self._refuse(401 if not is_known else 404, "RepoNotFound", "Repository not found")
            return None
        if match["revision"] not in (*repository.revisions, repository.commit):
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
            return None
        return repository

    def _api(self, match: re.Match[str]) -> None:
        if (repository := self._found(match)) is None:
            return
        if match["kind"] == "revision":
            siblings = [{"rfilename": name} for name in repository.files]
            self._json({"id": match["repo"], "sha": repository.commit, "siblings": siblings, "private": False})
            return
        self._json([_entry(name, content) for name, content in sorted(repository.files.items())])

    def _file(self, match: re.Match[str]) -> None:
        if (repository := self._found(match)) is None:
            return
        if repository.is_gated and self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._refuse(403, "GatedRepo", "Access to this model is restricted")
            return
        name = match["file"]
        if name not in repository.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        content = repository.files[name]
        headers = {"x-repo-commit": repository.commit, "accept-ranges": "bytes"}
        if name.endswith(_LFS):
            digest = hashlib.sha256(content).hexdigest()
            linked = {"x-linked-etag": f'"{digest}"', "x-linked-size": str(len(content))}
            elsewhere = f"{self.server_of.url.replace('127.0.0.1', 'localhost')}/cdn/{match['repo']}/{name}"
            self._send(302, {**headers, **linked, "location": elsewhere, "etag": '"pointer"'}, b"")
            return
        self._send(200, {**headers, "etag": f'"{_blob_id(content)}"'}, content)

    def _send_content(self, place: str) -> None:
        owner, name, file = place.split("/", 2)
        content = self.server_of.repositories[f"{owner}/{name}"].files[file]
        digest = hashlib.sha256(content).hexdigest()
        start = 0
        if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", "")):
            start = int(wanted[1])
        if self.command == "GET":
            self.server_of.requests.append(f"GET /{owner}/{name}/resolve/cdn/{file}")
        headers = {"etag": f'"{digest}"', "accept-ranges": "bytes"}
        if start:
            headers["content-range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, headers, content[start:], cut_after=self.server_of.cut_after)

    def _json(self, value: object) -> None:
        self._send(200, {"content-type": "application/json"}, json.dumps(value).encode())

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"x-error-code": code, "x-error-message": message, "content-type": "application/json"}
        self._send(status, headers, json.dumps({"error": message}).encode())

    def _send(self, status: int, headers: Mapping[str, str], body: bytes, cut_after: int | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut_after is not None and len(body) > cut_after:
            self.wfile.write(body[:cut_after])
            self.close_connection = True
            return
        self.wfile.write(body)


def _entry(name: str, content: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": _blob_id(content)}
    if name.endswith(_LFS):
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
    return entry


def _blob_id(content: bytes) -> str:
    """Return git's id of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
