"""Scripts and styles of the admin pages."""

from __future__ import annotations

from pathlib import Path

from gateway.admin.assets import Assets
from tests.gateway.admin.test_pages import MAX_PAGE_BYTES


def test_the_scripts_and_styles_of_all_pages_together_are_light_before_they_are_compressed() -> None:
    own = {name: content for name, content in Assets().own.items() if not name.endswith(".svg")}
    assert sum(map(len, own.values())) <= MAX_PAGE_BYTES


def test_sources_are_readable_and_lose_only_comments_and_white_space(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("// why\nconst text = `two\n  lines // stored`; /* no */ const ratio = 4 / 2 / 1;\n")
    (tmp_path / "a.css").write_text("/* why */\n.a > b { color: light-dark(#fff, #000); }\n")
    served = Assets(tmp_path).own
    assert served["a.js"] == b"const text=`two\n  lines // stored`;const ratio=4/2/1;"
    assert served["a.css"] == b".a>b{color:light-dark(#fff,#000)}"
