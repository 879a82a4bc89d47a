"""The pages of `docs/reference/`, generated from the code; `python -m tests.docs.reference` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.docs.reference.benches import benches_page
from tests.docs.reference.commands import commands_page
from tests.docs.reference.endpoints import endpoints_page
from tests.docs.reference.error_codes import error_codes_page
from tests.docs.reference.fields import fields_page
from tests.docs.reference.metric_families import metrics_page
from tests.docs.reference.policy_keys import policy_keys_page
from tests.docs.reference.settings import settings_page

FOLDER: Final = Path(__file__).resolve().parents[3] / "docs" / "reference"
REFRESH: Final = "python -m tests.docs.reference"

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "policy-keys.md": policy_keys_page,
    "settings.md": settings_page,
    "http-api.md": endpoints_page,
    "fields.md": fields_page,
    "metrics.md": metrics_page,
    "cli.md": commands_page,
    "error-codes.md": error_codes_page,
    "benches.md": benches_page,
}
