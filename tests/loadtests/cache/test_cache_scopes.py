"""The check across scopes: what counts as an answer of somebody else."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loadtests.cache.cache_scopes import Question, ScopeResult, _check_hit
from loadtests.clients.http_client import LoadConnection

_QUESTION = Question("tenant1", 0, 0, 0, 0, 3, 0, False)


@pytest.mark.parametrize(
    ("extra_chars", "is_hit", "is_first", "num_wrong"),
    [(0, True, False, 0), (0, True, True, 1), (0, False, True, 0), (1, False, True, 1), (1, True, False, 1)],
)
def test_another_length_is_wrong_and_so_is_a_hit_that_nobody_can_have_filled(
    extra_chars: int, is_hit: bool, is_first: bool, num_wrong: int
) -> None:
    text = "x" * (_QUESTION.num_chunks * 16 + extra_chars)
    content = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nx-penstock-cache: " + (b"hit-exact" if is_hit else b"miss") + b"\r\n\r\n"
    connection: Any = SimpleNamespace(scanner=SimpleNamespace(head=head, content=content))
    result = ScopeResult()

    _check_hit(result, _QUESTION, cast(LoadConnection, connection), is_first=is_first)

    assert result.num_wrong == num_wrong
    assert result.num_hits == is_hit
