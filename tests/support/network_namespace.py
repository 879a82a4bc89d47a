"""A network of its own for one server, whose packets can be dropped: needs root and `ip` of iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Self


class NetworkNamespace:
    """A namespace that one address reaches; `cut` drops what its servers send, without a sign to either side."""

    def __init__(self, name: str, subnet: str = "10.213.77") -> None:
        self.name = f"pt-{name}"
        self._link = f"pt-{name}"
        self._near, self.host = f"{subnet}.1", f"{subnet}.2"

    @staticmethod
    def is_possible() -> bool:
        """Whether this machine lets us."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            return False
        probe = f"pt-probe{os.getpid()}"
        if _run("ip", "netns", "add", probe).returncode != 0:
            return False
        can_link = _run("ip", "link", "add", probe[:12], "type", "veth", "peer", "name", f"{probe[:11]}p")
        _run("ip", "link", "del", probe[:12])
        _run("ip", "netns", "del", probe)
        return can_link.returncode == 0

    @property
    def within(self) -> tuple[str, ...]:
        """The command below which a server runs inside."""
        return ("ip", "netns", "exec", self.name)

    def __enter__(self) -> Self:
        far = f"{self._link}p"
        _must("ip", "netns", "add", self.name)
        _must("ip", "link", "add", self._link, "type", "veth", "peer", "name", far)
        _must("ip", "link", "set", far, "netns", self.name)
        _must("ip", "addr", "add", f"{self._near}/30", "dev", self._link)
        _must("ip", "link", "set", self._link, "up")
        _must(*self.within, "ip", "addr", "add", f"{self.host}/30", "dev", far)
        _must(*self.within, "ip", "link", "set", far, "up")
        _must(*self.within, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        _run("ip", "link", "del", self._link)
        _run("ip", "netns", "del", self.name)

    def cut(self) -> None:
        """Drop every packet that leaves the namespace from now on."""
        _must(*self.within, "ip", "route", "add", "blackhole", f"{self._near}/32")

    def heal(self) -> None:
        """Let packets through again."""
        _must(*self.within, "ip", "route", "del", "blackhole", f"{self._near}/32")


def _run(*command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, check=False, timeout=10)


def _must(*command: str) -> None:
    done = _run(*command)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.decode()}"
