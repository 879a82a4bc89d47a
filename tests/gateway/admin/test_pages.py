"""What the admin page is made of: its weight, its headers, what may be stored by browsers."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from gateway.admin.assets import Assets
from gateway.admin.pages import PAGES, Pages
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Lane, Route, Tenant
from routing_policies.policy.values import CacheHistory, CacheMode, CacheScope, ScorerName, SelectPolicy, StickyBy
from tests.gateway.stack import Stack, running

MAX_PAGE_BYTES = 84 * 1024
STATIC = Path(__file__).parents[3] / "gateway" / "admin" / "static"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running(tmp_path) as stack:
        yield stack


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
async def test_every_page_has_its_frame_and_a_strict_policy(stack: Stack, page: object) -> None:
    reply = await stack.get(getattr(page, "path", ""), admin=True)
    assert reply.status == 200
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["cache-control"] == "no-store"
    html = reply.body.decode()
    assert "<script>" not in html
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|https?://", html)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
async def test_what_a_page_loads_of_ours_is_light(stack: Stack, page: object) -> None:
    html = (await stack.get(getattr(page, "path", ""), admin=True)).body.decode()
    wanted = set(re.findall(r"/admin/static/[0-9a-f]+/[a-z]+\.(?:js|css)", html))
    scripts = [name for name in wanted if name.endswith(".js")]
    for path in scripts:
        text = (STATIC / Path(path).name).read_text()
        wanted |= {path.rpartition("/")[0] + "/" + name for name in re.findall(r'from "\./([a-z]+\.js)"', text)}
    sizes = [len((await stack.get(path, admin=True)).body) for path in sorted(wanted)]
    assert len(sizes) >= 4
    assert sum(sizes) <= MAX_PAGE_BYTES


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_no_template_literal_is_inside_another_where_white_space_would_be_lost(path: Path) -> None:
    """What takes the white space away reads them flat: a nested one's text would pass for code."""
    assert re.findall(r"\$\{[^{}`]*(?:\{[^{}`]*\}[^{}`]*)*`", path.read_text()) == []


async def test_assets_are_stored_for_ever_and_compressed_on_request(stack: Stack) -> None:
    base = stack.gateway.room.assets.base
    plain = await stack.get(f"{base}/core.js", admin=True)
    zipped = await stack.get(f"{base}/core.js", admin=True, headers={"accept-encoding": "gzip"})
    assert "immutable" in plain.headers["cache-control"]
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == plain.body
    assert plain.headers["x-content-type-options"] == "nosniff"


async def test_assets_of_another_version_and_paths_outside_are_404(stack: Stack) -> None:
    base = stack.gateway.room.assets.base
    for path in ("/admin/static/0000/core.js", f"{base}/../assets.py", f"{base}/..%2fassets.py", f"{base}/", base):
        assert (await stack.get(path, admin=True)).status == 404, path


async def test_the_charting_library_comes_from_the_installed_package_compressed(stack: Stack) -> None:
    path = stack.gateway.room.assets.plotly
    reply = await stack.get(path, admin=True, headers={"accept-encoding": "gzip, br"})
    assert reply.status == 200
    assert len(reply.body) < 2 * 1024 * 1024
    assert b"plotly.js v" in gzip.decompress(reply.body)[:2000]


async def test_the_api_is_never_stored_by_browsers(stack: Stack) -> None:
    for path in ("overview", "requests", "deployments", "load"):
        assert (await stack.get(f"/admin/api/{path}", admin=True)).headers["cache-control"] == "no-store"


async def test_ranges_and_strange_methods_do_nothing_special(stack: Stack) -> None:
    path = f"{stack.gateway.room.assets.base}/core.js"
    ranges = "bytes=" + ",".join(f"{n}-{n}" for n in range(3000))
    whole = await stack.get(path, admin=True, headers={"range": ranges})
    assert whole.status == 200
    assert len(whole.body) == len(stack.gateway.room.assets.own["core.js"])
    for method in ("TRACE", "CONNECT", "DELETE", "POST"):
        assert (await stack.get(path, admin=True) if not method else await _with(stack, method, path)) in (400, 405)
    assert (await stack.get("/docs", admin=True)).status == 404
    assert (await stack.get("/admin/?debug=1", admin=True)).status == 200


async def _with(stack: Stack, method: str, path: str) -> int:
    return (await stack.call(None, admin=True, path=path, method=method)).status


def test_every_page_has_a_path_and_comes_from_a_template_that_escapes() -> None:
    pages = Pages(Assets())
    assert {endpoint.path for endpoint in pages.endpoints()} >= {"/admin", *(page.path for page in PAGES)}
    assert pages.templates.env.from_string("{{ text }}").render(text="<b>") == "&lt;b&gt;"


def test_the_policy_form_has_every_choice_and_only_paths_of_the_document() -> None:
    html = Pages(Assets()).templates.env.get_template("policy_fields.html").render()
    choices = {
        path: re.findall(r'type="radio" value="([^"]+)"', body)
        for path, body in re.findall(r'<fieldset class="choices" data-path="([^"]+)".*?>(.*?)</fieldset>', html, re.S)
    }
    expected = {
        "cache.mode": CacheMode,
        "cache.scope": CacheScope,
        "cache.history": CacheHistory,
        "select.policy": SelectPolicy,
        "select.sticky_by": StickyBy,
    }
    for path, words in expected.items():
        assert sorted(choices[path]) == sorted(get_args(words)), path
    assert set(re.findall(r"select\.weights\.(\w+)", html)) == set(get_args(ScorerName))
    kinds = {"routes": Route, "lanes": Lane, "deployments": Deployment, "tenants": Tenant}
    for kind, body in re.findall(r'data-kind="(\w+)" title(.*?)(?=data-kind="\w+" title|\Z)', html, re.S):
        for path in re.findall(r'data-path="([^"]+)"', body):
            assert _leads_somewhere(kinds[kind], path), path
        for policy in re.findall(r'data-when="select\.policy=([^"]+)"', body):
            assert set(policy.split()) <= set(get_args(SelectPolicy)), policy


def _leads_somewhere(kind: Any, path: str) -> bool:
    """Return whether a path such as `select.min_quality` is one of a struct's."""
    for name in path.split("."):
        structs = [one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        fields = {field.name: field.type for one in structs for field in msgspec.structs.fields(one)}
        if not fields:
            return path.startswith("select.weights.")
        if name not in fields:
            return False
        kind = fields[name]
    return True
