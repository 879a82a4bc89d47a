"""Reading of files that others name: nothing that blocks, and no more than a bound."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular_file(path: Path, max_bytes: int | None = None) -> bytes:
    """Return a file's content, following links.

    A pipe without a writer would block its reader forever, and a device may have no end, so both are refused.

    Args:
        path: The file.
        max_bytes: Bytes to read at most; None for all.

    Raises:
        OSError: It cannot be read or is no regular file; `strerror` has the reason.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        if not stat.S_ISREG(mode):
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(code, "Is a directory" if code == errno.EISDIR else "Is no regular file", str(path))
        return stream.read() if max_bytes is None else stream.read(max_bytes)
