"""Ray is imported here once, because its modules warn while they load, and a warning is an error in tests."""

from __future__ import annotations

import importlib
import warnings
from contextlib import suppress

with warnings.catch_warnings(), suppress(ImportError):  # without the extra the tests that need it are skipped
    warnings.simplefilter("ignore")
    for _name in ("ray.serve.schema", "ray.cluster_utils"):
        importlib.import_module(_name)
