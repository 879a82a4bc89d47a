"""`unshare --mount --net --pid --fork python -m deploy.images.pod`: start containers as one pod, and probe them.

Reads a JSON list of containers on stdin and prints what was seen as JSON. Each container has a read-only root, empty
folders where the manifest mounts volumes, and runs as user 65532 without capabilities and shares the others' network.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

USER: Final = "65532"
_START_LIMIT_S: Final = 180.0
_STOP_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container: a mounted image, and what its manifest states."""

    name: str
    root: str
    command: list[str]
    env: Mapping[str, str]
    port: int
    writable: list[str]
    files: Mapping[str, str]
    """Text by path: mounted read-only, as a ConfigMap or a Secret is."""
    ready: bool = True
    """True if `/startupz` and `/readyz` must answer 200; a gateway without an engine answers `/livez` alone."""
    key: str = ""
    """API key of a gateway's requests."""
    image_env: Mapping[str, str] = field(default_factory=dict)


def main() -> None:
    """Probe the containers that stdin lists, all running at once."""
    specs = [ContainerSpec(**found) for found in json.load(sys.stdin)]
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    seen: dict[str, Any] = {}
    running: list[tuple[ContainerSpec, subprocess.Popen[bytes]]] = []
    try:
        for spec in specs:
            _mount(spec)
            seen[spec.name] = {"writes": _writes(spec)}
            started_at = time.monotonic()
            running.append((spec, _start(spec)))
            seen[spec.name] |= _probes(spec, running[-1][1])
            seen[spec.name] |= {"start_s": round(time.monotonic() - started_at, 1), **_identity(spec, running[-1][1])}
        if len(specs) > 1:
            seen["answer"] = _ask(specs[-1])
    finally:
        for spec, process in reversed(running):
            seen[spec.name]["exit"] = _stop(process)
    print(json.dumps(seen))


def _mount(spec: ContainerSpec) -> None:
    """Lay the read-only root and its few writable folders."""

    def mount(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True)

    mount("--bind", spec.root, spec.root)
    for folder in spec.writable + sorted({str(Path(path).parent) for path in spec.files}):
        Path(spec.root + folder).mkdir(parents=True, exist_ok=True)
    mount("--options", "remount,bind,ro", spec.root)
    mount("--types", "proc", "proc", f"{spec.root}/proc")
    mount("--rbind", "/dev", f"{spec.root}/dev")
    for folder in spec.writable:
        mount("--types", "tmpfs", "--options", f"uid={USER},gid={USER},mode=2770", "volume", spec.root + folder)
    for folder in sorted({str(Path(path).parent) for path in spec.files}):
        mount("--types", "tmpfs", "files", spec.root + folder)
    for path, text in spec.files.items():
        Path(spec.root + path).write_text(text)
        shutil.chown(spec.root + path, group=int(USER))
        os.chmod(spec.root + path, 0o440)


def _inside(spec: ContainerSpec, command: list[str]) -> list[str]:
    """Return a command that runs another in the container, as the user and with the rights of its manifest."""
    settings = [f"{name}={value}" for name, value in {**spec.image_env, **spec.env}.items()]
    rights = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *rights]
    return ["chroot", spec.root, *user, "env", "--ignore-environment", "-C", "/var/lib/penstock", *settings, *command]


def _start(spec: ContainerSpec) -> subprocess.Popen[bytes]:
    return subprocess.Popen(_inside(spec, spec.command), stdout=sys.stderr)


def _writes(spec: ContainerSpec) -> dict[str, bool]:
    """Try to write a file into each folder, in the container: only volumes may take one."""
    folders = ["/", "/etc", "/opt/penstock", *spec.writable]
    script = "import sys\nopen(sys.argv[1] + '/written', 'w')"
    return {
        folder: subprocess.run(_inside(spec, ["python", "-c", script, folder]), capture_output=True).returncode == 0
        for folder in folders
    }


def _identity(spec: ContainerSpec, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the rights of the running process and of its root, as the kernel states them."""
    lines = Path(f"{spec.root}/proc/{process.pid}/status").read_text().splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {
        "uid": status["Uid"].split()[0],
        "capabilities": int(status["CapEff"], 16),
        "no_new_privs": status["NoNewPrivs"],
        "read_only": bool(os.statvfs(spec.root).f_flag & os.ST_RDONLY),
    }


def _probes(spec: ContainerSpec, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until the probes of the manifest answer, and return their status."""
    paths = ("startupz", "livez", "readyz") if spec.ready else ("livez",)
    give_up_at = time.monotonic() + _START_LIMIT_S
    found: dict[str, Any] = {}
    for path in paths:
        while (status := _status(f"http://127.0.0.1:{spec.port}/{path}")) != 200:
            if process.poll() is not None:
                raise SystemExit(f"{spec.name} ended with {process.returncode} before /{path} answered")
            if time.monotonic() > give_up_at:
                raise SystemExit(f"{spec.name}: /{path} still answers {status} after {_START_LIMIT_S:.0f} s")
            time.sleep(0.25)
        found[path] = status
    return found


def _status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=3) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def _ask(spec: ContainerSpec) -> str:
    """Return the text of one answer that goes through gateway and engine."""
    body = {"model": "probe", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{spec.port}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {spec.key}"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def _stop(process: subprocess.Popen[bytes]) -> int | None:
    """Stop as a kubelet does, and return the exit status; None: the grace period was over."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return None


if __name__ == "__main__":
    main()
