"""Files of this machine that a process replaces as a whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Readers see the old content or the new one; best effort: where it cannot be written the old one stays.

    `mode` holds less the process's umask, also while the file is being written.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(aside, path)
