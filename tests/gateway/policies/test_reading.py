"""Reading of the policy file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.policies.policy_file import (
    PolicyFileError,
    read_policy,
)
from gateway.policies.reading import PolicyChecks


def test_a_file_that_is_not_there_or_not_text_is_an_error_that_reports_it(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyFileError, match=r"none\.yaml: cannot be read \(No such file or directory\); check --policy"
    ):
        read_policy(tmp_path / "none.yaml", PolicyChecks())
    (tmp_path / "latin.yaml").write_bytes(b"# \xe9\n")
    with pytest.raises(PolicyFileError, match=r"not UTF-8 \(byte 2\)"):
        read_policy(tmp_path / "latin.yaml", PolicyChecks())


def test_a_gateway_imports_the_search_of_proofs_only_for_a_document_that_needs_it() -> None:
    command = "import sys, gateway.app.app; sys.exit('routing_policies.proof.search' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
