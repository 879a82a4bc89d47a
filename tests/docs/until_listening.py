"""`python -m tests.docs.until_listening COMMAND …`: start a server of `penstock`, wait until it listens, stop it.

Stands for the commands that serve until a signal, so that a block with one of them ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Final

LISTENING: Final = ('"event":"started"', "engine: ")
"""What a gateway and an engine print once they listen."""
LIMIT_S: Final = 50.0


def main() -> int:
    """Return the server's own exit status, 1 when it never listened."""
    arguments = sys.argv[1:]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PENSTOCK_PROCESS_RUNTIME_DIR": "run"}
    environment |= {"PENSTOCK_PUBLIC_LISTEN": "127.0.0.1:0", "PENSTOCK_ADMIN_LISTEN": "127.0.0.1:0"}
    command = [sys.executable, "-m", "gateway", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        limit = threading.Timer(LIMIT_S, server.kill)
        limit.start()
        has_listened = False
        for line in server.stdout:
            print(line, end="", flush=True)
            if not has_listened and any(reported in line for reported in LISTENING):
                has_listened = True
                server.send_signal(signal.SIGTERM)
        limit.cancel()
        status = server.wait()
    if has_listened and status == -signal.SIGTERM:
        return 0  # stopped so early that it had nothing to drain
    return status if has_listened else status or 1


if __name__ == "__main__":
    sys.exit(main())
