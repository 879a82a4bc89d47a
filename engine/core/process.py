"""The core process: connect to the front, start up in phases, run the step loop, report the reason for its end."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, MutableMapping, Sequence

from engine.config import CoreConfig, EngineConfigError, parse_config
from engine.core.inbox import FrontGoneError
from engine.core.outbox import Outbox
from engine.core.standby import StandbyEnded
from engine.cpu.jit.failure import compilation_reported_to
from engine.garbage import exclude_loaded
from engine.protocol import Compiling, Fatal

logger = logging.getLogger(__name__)

_SPIN_COUNT = "10000"
"""Number of spins of torch's threads before they sleep, which last about as long as the gap between two operations."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one core; return the exit status: 0 if the front ended it or closed the connection, 1 after a Fatal frame."""
    parser = argparse.ArgumentParser(prog="python -m engine.core", description=__doc__)
    parser.add_argument("--socket", required=True, help="Unix socket that the front listens on")
    parser.add_argument("--config", required=True, help="CoreConfig as JSON")
    parser.add_argument("--standby", action="store_true", help="wait for the front's word before taking over")
    parser.add_argument("--compiler-crash", default="", help="how the compiler ended an earlier core: compile nothing")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s core %(levelname)s %(name)s: %(message)s")
    leave_cores_alone(os.environ)
    # Ctrl-C reaches the whole process group; the front decides when the core ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(options.socket)
        return run_core(
            sock,
            options.config,
            time.monotonic,
            is_standby=options.standby,
            compiler_crash=options.compiler_crash,
            on_loaded=_settle,
        )


def _settle() -> None:
    """Give back what only the start needed."""
    from engine.huge_pages import release_free_memory, release_library_pages

    exclude_loaded()
    release_free_memory()
    release_library_pages()


def leave_cores_alone(environment: MutableMapping[str, str]) -> None:
    """Set torch's threads to sleep soon after an operation, unless already set; call before importing torch.

    By default, GNU's OpenMP spins for ten milliseconds on cores that compiled steps need meanwhile.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)


def run_core(
    sock: socket.socket,
    config_text: str,
    clock: Callable[[], float],
    *,
    is_standby: bool = False,
    compiler_crash: str = "",
    on_loaded: Callable[[], None] = lambda: None,
) -> int:
    """Serve the front at the other end of `sock` until Shutdown or its end; the exit status.

    `on_loaded` is called once everything that the process needs is there, before it says that it is ready.
    """
    outbox = Outbox(sock, clock)
    try:
        config = parse_config(config_text)
        with compilation_reported_to(lambda what: outbox.send(Compiling(what))):
            _serve(
                sock, outbox, config, clock, is_standby=is_standby, compiler_crash=compiler_crash, on_loaded=on_loaded
            )
    except FrontGoneError as error:
        logger.info("the front is gone: %s", error)
    except StandbyEnded:
        logger.info("never needed")
    except EngineConfigError as error:
        # The front prints the message; a traceback would only hide it.
        _report_reason(outbox, error)
        return 1
    # The process ends either way; the front must learn why, whatever went wrong.
    except Exception as error:
        logger.exception("the core cannot go on")
        _report_reason(outbox, error)
        return 1
    return 0


def _serve(
    sock: socket.socket,
    outbox: Outbox,
    config: CoreConfig,
    clock: Callable[[], float],
    *,
    is_standby: bool,
    compiler_crash: str,
    on_loaded: Callable[[], None],
) -> None:
    with outbox.phase("import"):
        # torch takes seconds to import; that is a phase reported to the front, so it happens here and not above.
        from engine.core.assembly import build_core
    loop, ready = build_core(config, sock, outbox, clock, is_standby=is_standby, compiler_crash=compiler_crash)
    on_loaded()
    outbox.send(ready)
    logger.debug("ready: %s", ready)
    loop.run()


def _report_reason(outbox: Outbox, error: Exception) -> None:
    try:
        outbox.send(
            Fatal(message=str(error), is_settings=True)
            if isinstance(error, EngineConfigError)
            else Fatal(message=f"{type(error).__name__}: {error}")
        )
    except FrontGoneError as gone:
        logger.info("the front is gone: %s", gone)
