"""EndpointSliceWatch: lists the slices of a Service, then watches their changes from that version on.

A watch ends often: by its time limit, by a lost connection, by a restarted API server. It resumes behind the last
version seen. A server that no longer has that version answers 410 Gone; then everything is listed anew.
"""

from __future__ import annotations

import asyncio
from typing import Final

import httpx
import msgspec

from gateway.discovery.http_json import UnexpectedStatus, fetch_json
from gateway.discovery.kubernetes.api_server import ANSWER_TIMEOUT_S, KubernetesApi
from gateway.discovery.kubernetes.endpoint_slices import EndpointSlice, EndpointSliceTable, ObjectMeta
from gateway.discovery.source import FIRST_PAUSE_S, Listing, Pause, SourceError, pauses, take_usable
from gateway.util.doubling_pauses import DoublingPauses

WATCH_S: Final = 240
"""Seconds after which the server ends a watch, so that a connection that died unseen is not kept for longer."""
SILENCE_S: Final = WATCH_S + 20.0
PAGE: Final = 500
MAX_SLICES: Final = 10_000
MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
_GONE: Final = 410


class _SliceList(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    items: tuple[EndpointSlice, ...] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    """Object of an ERROR event."""

    code: int = 0
    message: str = ""


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Gone(Exception):
    """The server no longer has the version to go on from."""


_event_decoder: Final = msgspec.json.Decoder(_Event)
_slice_decoder: Final = msgspec.json.Decoder(EndpointSlice)


class EndpointSliceWatch:
    """Members of one Service, `namespace/name`."""

    def __init__(
        self, service: str, port: int | str | None, api: KubernetesApi, *, pause: Pause = asyncio.sleep
    ) -> None:
        namespace, _, name = service.partition("/")
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = f"kubernetes.io/service-name={name}"
        self._api = api
        self._pause = pause
        self._table = EndpointSliceTable(port)
        self._version = ""
        """Version to watch from; empty before the first list, and after the server forgot it."""

    async def follow(self, listing: Listing) -> None:
        """List and watch for ever; ends by cancellation."""
        # A list that succeeds says nothing of the watch after it: only an event makes the watch's pauses short again.
        lists, watches = pauses(), pauses()
        backoff = lists
        while True:
            try:
                if not self._version:
                    backoff = lists
                    await self._list()
                    lists.reset()
                    self._tell(listing)
                backoff = watches
                has_read = await self._watch(listing, watches)
                # A server that ends each watch at once, or after one event, is not hurried.
                await self._pause(FIRST_PAUSE_S if has_read else watches.failed())
            except _Gone:
                self._version = ""
                await self._pause(backoff.failed())
            except SourceError as error:
                listing.fail(str(error))
                await self._pause(backoff.failed())

    def _tell(self, listing: Listing) -> None:
        """Report the members; a listing that is refused is a failure, and later events may mend it."""
        try:
            take_usable(listing, self._table.members())
        except SourceError as error:
            listing.fail(str(error))

    async def _list(self) -> None:
        """Read every page of the list; raises SourceError, or _Gone when the list changed too much meanwhile."""
        found: list[EndpointSlice] = []
        token = ""
        while True:
            parameters = {"labelSelector": self._selector, "limit": str(PAGE)}
            if token:
                parameters["continue"] = token
            request = self._api.request(self._path, parameters, read_timeout_s=ANSWER_TIMEOUT_S)
            try:
                page = await fetch_json(self._api.client, request, _SliceList)
            except UnexpectedStatus as error:
                if error.status == _GONE and token:
                    raise _Gone from error
                raise
            found += page.items or ()
            token = page.metadata.continue_token
            if not token:
                break
            if len(found) > MAX_SLICES:
                raise SourceError(f"the Service has more than {MAX_SLICES} slices")
        self._table.replace(tuple(found))
        self._version = page.metadata.resource_version

    async def _watch(self, listing: Listing, backoff: DoublingPauses) -> bool:
        """Take changes until the server ends the watch; return whether any event came.

        Raises:
            SourceError: The watch failed, or an event cannot be read.
            _Gone: The server no longer has the version.
        """
        parameters = {
            "labelSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }
        request = self._api.request(self._path, parameters, read_timeout_s=SILENCE_S)
        try:
            response = await self._api.client.send(request, stream=True)
            try:
                if response.status_code == _GONE:
                    raise _Gone
                if response.status_code != 200:
                    raise UnexpectedStatus(request.url.host, response.status_code)
                self._tell(listing)
                return await self._read(response, listing, backoff)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise SourceError(f"{request.url.host}: {str(error) or type(error).__name__}") from error

    async def _read(self, response: httpx.Response, listing: Listing, backoff: DoublingPauses) -> bool:
        buffer, has_read = bytearray(), False
        async for part in response.aiter_bytes():
            buffer += part
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            changed = [self._take(line) for line in lines if line.strip()]
            if any(changed):
                self._tell(listing)
            if changed:
                has_read = True
                backoff.reset()
            if len(buffer) > MAX_EVENT_BYTES:
                raise SourceError(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        return has_read

    def _take(self, line: bytes) -> bool:
        """Adopt one event; return whether members may have changed. Raises SourceError or _Gone."""
        try:
            event = _event_decoder.decode(line)
            if event.type == "BOOKMARK":
                bookmark = msgspec.json.decode(event.object, type=_Bookmark)
                self._version = bookmark.metadata.resource_version or self._version
                return False
            if event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=_Status)
                if status.code == _GONE:
                    raise _Gone
                raise SourceError(f"watch: {status.message[:200]} ({status.code})")
            changed = _slice_decoder.decode(event.object)
        except msgspec.DecodeError as error:
            self._version = ""  # what was missed is listed anew
            raise SourceError(f"watch: {error}") from error
        if event.type == "DELETED":
            self._table.remove(changed.metadata.name)
        else:
            self._table.put(changed)
        self._version = changed.metadata.resource_version or self._version
        return True
