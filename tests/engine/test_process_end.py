"""The end of a compute process."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import atexit, logging.handlers, threading
from engine.process_end import end_without_cleanup
atexit.register(print, "cleaned up", flush=True)
threading.Thread(target=threading.Event().wait).start()
handler = logging.handlers.MemoryHandler(100, logging.CRITICAL, logging.StreamHandler())
logging.getLogger().addHandler(handler)
logging.getLogger().error("the last line")
end_without_cleanup(5)
"""


def test_a_process_ends_at_once_with_its_status_and_its_log_though_a_thread_waits() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (5, "")
    assert "the last line" in done.stderr
