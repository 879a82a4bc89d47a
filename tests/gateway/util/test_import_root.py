"""The folder that this package is imported from."""

from __future__ import annotations

from pathlib import Path

import gateway
from gateway.util.import_root import IMPORT_ROOT


def test_a_child_process_that_is_given_it_imports_the_same_package() -> None:
    assert gateway.__file__ is not None
    assert Path(gateway.__file__).resolve() == IMPORT_ROOT / "gateway" / "__init__.py"
