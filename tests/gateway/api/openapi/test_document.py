"""The OpenAPI document: whole, and true to what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs  # comes with schemathesis
import pytest

from gateway.api.openapi.document import openapi_document
from gateway.chat.request import ChatRequestParser
from gateway.errors import InvalidRequest
from tests.gateway.chat.test_request import ACCEPTED, REFUSED
from tests.gateway.stack import policy_text, running

DOCUMENT = openapi_document()


def validator() -> Any:
    schema = {"$ref": "#/components/schemas/ChatFields", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(schema)


def body(fields: dict[str, Any]) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": "hi"}], **fields}


def test_every_reference_leads_somewhere() -> None:
    names = set(DOCUMENT["components"]["schemas"])
    text = json.dumps(DOCUMENT)

    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} <= names


def test_every_operation_documents_its_errors_with_the_envelope() -> None:
    for path, operations in DOCUMENT["paths"].items():
        envelope = "/MessageErrorEnvelope" if path.startswith("/v1/messages") else "/ErrorEnvelope"
        for method, operation in operations.items():
            if method == "parameters":
                continue
            for status, response in operation["responses"].items():
                assert "x-request-id" in response["headers"], (path, status)
                if status != "200":
                    assert response["content"]["application/json"]["schema"]["$ref"].endswith(envelope)
    assert {"400", "401", "403", "404", "413", "415", "429", "502", "503", "504"} <= set(
        DOCUMENT["paths"]["/v1/chat/completions"]["post"]["responses"]
    )


@pytest.mark.parametrize("fields", ACCEPTED)
def test_what_is_accepted_is_valid(fields: dict[str, Any]) -> None:
    assert validator().is_valid(body(fields))


@pytest.mark.parametrize("fields", [fields for fields, _ in REFUSED])
def test_what_is_refused_is_not_valid(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        ChatRequestParser().parse(json.dumps(body(fields)).encode())
    assert not validator().is_valid(body(fields))


async def test_it_requests_a_key_exactly_where_the_policy_has_one(tmp_path: Path) -> None:
    tenants = f'tenants: [{{id: shop, keys: [{{id: k, sha256: "{"0" * 64}"}}]}}]\n'
    async with running(tmp_path, policy=policy_text(tmp_path) + tenants) as stack:
        served = (await stack.get("/openapi.json", admin=True)).json
    assert served == json.loads(json.dumps(DOCUMENT))
    assert served["security"] == [{"key": []}]
    assert served["paths"]["/livez"]["get"]["security"] == []


async def test_it_is_served_to_operators_only(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        served = (await stack.get("/openapi.json", admin=True)).json
        assert served == json.loads(json.dumps({**DOCUMENT, "security": []}))
        assert (await stack.get("/openapi.json")).status == 404
