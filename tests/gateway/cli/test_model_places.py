"""Places of models: servers by URL, and wrong flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.commands import CommandError, UsageError
from gateway.cli.outcomes.model_server import Prices
from gateway.cli.outcomes_command import model_places


def flags(tmp_path: Path, **given: Any) -> argparse.Namespace:
    base: dict[str, Any] = {"judge": None, "small_prices": None, "large_prices": None, "judge_prices": None}
    paths = {"config": None, "runtime_dir": tmp_path, "url": None, "token_file": None}
    return argparse.Namespace(**{**base, **paths, **given})


def test_servers_are_named_by_url_with_a_model_or_their_only_one(tmp_path: Path) -> None:
    listing = httpx.MockTransport(lambda _: httpx.Response(200, json={"data": [{"id": "org/big"}]}))
    options = flags(tmp_path, small="http://a:8000#tiny", large="http://b/api/v1", small_prices="0.1,0.4")
    places = model_places(options, transport=listing)
    assert (places["small"].url, places["small"].name, places["small"].prices) == (
        "http://a:8000/v1",
        "tiny",
        Prices(0.1, 0.4),
    )
    assert (places["large"].url, places["large"].name, places["large"].prices) == ("http://b/api/v1", "org/big", None)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"small": "http://a#m", "large": "http://b#m"}, UsageError, "--large: is m, as --small is"),
        ({"small": "http://a#m", "large": "http://b#n", "large_prices": "1"}, UsageError, "--large-prices: expected"),
        ({"small": "http://a#m", "large": "http://b#n", "large_prices": "1,nan"}, UsageError, "--large-prices"),
        ({"small": "small", "large": "http://b#n"}, CommandError, "no penstock runs in"),
        ({"small": "http://a", "large": "http://b#n"}, CommandError, "http://a/v1/models does not answer"),
    ],
)
def test_what_cannot_be_compared_is_reported(
    tmp_path: Path, given: dict[str, str], error: type[Exception], message: str
) -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(error, match=message):
        model_places(flags(tmp_path, **given), transport=httpx.MockTransport(refuse))
