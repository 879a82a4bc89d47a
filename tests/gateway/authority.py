"""A certificate authority for tests, by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority for one test session and what it signed."""

    folder: Path

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str, *, dns: str = "localhost", days: int = 2) -> tuple[Path, Path]:
        """(certificate, key) for a server; a negative number of days makes one that is already over."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName=DNS:{dns}\n")
        _openssl("req", "-newkey", *_EC, "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={dns}")
        signer = ("-CA", self.ca_file, "-CAkey", self.folder / "ca.key", "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *signer, "-days", days, "-extfile", extensions, "-out", certificate)
        return certificate, key


_EC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_authority(folder: Path) -> Authority:
    """An authority with its files in `folder`."""
    made = Authority(folder)
    key = folder / "ca.key"
    constraints = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    subject = ("-subj", "/CN=penstock test authority", "-days", 2)
    _openssl("req", "-x509", "-newkey", *_EC, "-nodes", "-keyout", key, "-out", made.ca_file, *subject, *constraints)
    return made
