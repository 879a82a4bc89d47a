"""Requests of the admin listener: query parameters with bounds, and handlers found by their marks."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from gateway.access.identity import Role
from gateway.admin.api.request import AdminEndpoint, AdminRequest, endpoints_of, serves
from gateway.errors import InvalidRequest


def requested(query: str) -> AdminRequest:
    return AdminRequest({"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": []})


def test_a_missing_or_empty_parameter_is_none_and_numbers_have_their_default() -> None:
    assert requested("").text("who") is None
    assert requested("who=").text("who") is None
    assert requested("who=anna").text("who") == "anna"
    assert requested("limit=").integer("limit", 20, least=1, most=50) == 20


@pytest.mark.parametrize("value", ["0", "51", "-1", "1.5", "٣", "ten", "1e1", "9" * 30])
def test_what_is_no_whole_number_within_the_bounds_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidRequest, match="limit: expected a whole number from 1 to 50") as caught:
        requested(f"limit={value}").integer("limit", 20, least=1, most=50)
    assert caught.value.param == "limit"


def test_a_choice_is_one_of_a_few() -> None:
    assert requested("window=60").choice("window", 300, (60, 300)) == 60
    assert requested("").choice("window", 300, (60, 300)) == 300
    with pytest.raises(InvalidRequest, match="expected one of 60, 300"):
        requested("window=61").choice("window", 300, (60, 300))


class Handlers:
    """Two endpoints and a helper."""

    @serves("/a")
    async def show(self, request: AdminRequest) -> Response:
        return Response(b"a")

    @serves("/b", "POST", role=Role.ADMIN, max_bytes=7)
    async def change(self, request: AdminRequest) -> Response:
        return Response(b"b")

    async def helper(self, request: AdminRequest) -> Response:
        raise AssertionError("no endpoint")


async def test_marked_methods_become_endpoints_bound_to_their_object() -> None:
    show, change = endpoints_of(Handlers())
    assert (show.path, show.method, show.least_role) == ("/a", "GET", Role.VIEWER)
    assert (change.path, change.method, change.least_role, change.max_bytes) == ("/b", "POST", Role.ADMIN, 7)
    assert (await change.handler(requested(""))).body == b"b"


@pytest.mark.parametrize(("method", "role"), [("GET", Role.VIEWER), ("POST", Role.EDITOR), ("DELETE", Role.EDITOR)])
def test_writing_takes_an_editor_unless_reported_otherwise_and_public_takes_nobody(method: str, role: Role) -> None:
    async def handler(request: AdminRequest) -> Response:
        return Response()

    assert AdminEndpoint(path="/", handler=handler, method=method).least_role is role
    assert AdminEndpoint(path="/", handler=handler, method=method, is_public=True).least_role is None
