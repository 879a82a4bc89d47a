"""Labels at the admin API: counts for everybody, figures for editors, words for nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gateway.cli.test_label_training import policy_text, record
from tests.gateway.stack import running


async def test_labels_are_shown_without_words_and_to_editors_only(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy_text(tmp_path)) as stack:
        record(stack, 1)
        path = "/admin/api/routing/labels/export?weak=my-small&strong=my-large"
        assert (await stack.get(path, admin=True)).status == 401
        headers = {"authorization": f"Bearer {stack.admin_token}"}
        found: Any = (await stack.get(path, admin=True, headers=headers)).json
        assert found["next"] is None
        (label,) = found["labels"]
        assert set(label) == {
            *("format", "weak", "strong", "at", "source", "lost", "numbers", "end", "shapes", "words", "vector"),
            *("encoder", "kind", "confidence"),
        }
        unknown = await stack.get("/admin/api/routing/labels/export?weak=x", admin=True, headers=headers)
        assert unknown.json == {"labels": [], "next": None}
