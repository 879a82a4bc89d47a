"""Background compiler of grammars: one at a time, each text once, with a cache of the results."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from engine.sampling.grammar import MAX_GRAMMAR_BYTES, GrammarError, GrammarState, UncheckedGrammarError

logger = logging.getLogger(__name__)

MAX_CACHED = 64
"""Size of the cache of compiled grammars and wrong texts; the least recently used entry leaves first."""
RECHECK_S = 60.0
"""Seconds for which a grammar stays refused whose check did not end; a client that repeats it costs one check."""


@dataclass(frozen=True, slots=True)
class GrammarDone:
    """Result for a sequence's grammar: its own state at the start, or an error."""

    seq_id: int
    state: GrammarState | None
    error: str | None = None


class Compile(Protocol):
    """Compiler that returns a state at a grammar's start; used from one thread."""

    def prepare(self) -> None:
        """Load what the first grammar needs. Raises GrammarError, OSError."""

    def compile(self, source: str) -> GrammarState:
        """Compile a grammar. Raises GrammarError for a wrong text and OSError for a fault of the machine."""


class Grammars(Protocol):
    """Scheduler's interface to the compilation of grammars."""

    def request(self, seq_id: int, source: str) -> None:
        """Request a sequence's grammar; the step loop receives exactly one `GrammarDone` later."""


class GrammarCompiler:
    """Compiler thread with a cache.

    The step loop's thread calls `request`. Results go to `deliver`, from the compiler's thread or within the call.
    """

    def __init__(
        self,
        compiler: Compile,
        deliver: Callable[[GrammarDone], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compiler = compiler
        self._deliver = deliver
        self._clock = clock
        self._lock = threading.Lock()
        # Guarded by the lock: results by text, and the sequences that wait for each text.
        self._retained: OrderedDict[str, GrammarState | GrammarError] = OrderedDict()
        self._recheck_at: dict[str, float] = {}
        """Instants from which texts are compiled again whose check did not end."""
        self._waiting: dict[str, list[int]] = {}
        self._jobs: SimpleQueue[str] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="grammars", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request(self, seq_id: int, source: str) -> None:
        """Request a sequence's grammar; exactly one `GrammarDone` follows."""
        if len(source) > MAX_GRAMMAR_BYTES:
            self._deliver(GrammarDone(seq_id, None, f"it exceeds the limit of {MAX_GRAMMAR_BYTES} bytes"))
            return
        with self._lock:
            retained = self._retained.get(source)
            if self._clock() >= self._recheck_at.get(source, math.inf):
                del self._recheck_at[source]
                retained = None
            if retained is None:
                is_new = source not in self._waiting
                self._waiting.setdefault(source, []).append(seq_id)
            else:
                self._retained.move_to_end(source)
        if retained is not None:
            self._deliver(_done(seq_id, retained))
        elif is_new:
            self._jobs.put(source)

    def _run(self) -> None:
        while True:
            # The first grammar waits for the tokenizer: with a large vocabulary it takes a gigabyte, which most engines
            # never need.
            self._work(self._jobs.get())
            # Restarts the checking process after a grammar ended it, so that the next one need not wait.
            self._prepare()

    def _prepare(self) -> None:
        try:
            self._compiler.prepare()
        except (GrammarError, OSError) as error:
            # Every request will meet the error again and report it; no request is affected here.
            logger.warning("grammars cannot be served: %s", error)

    def _work(self, source: str) -> None:
        result: GrammarState | GrammarError
        keeps = True
        try:
            result = self._compiler.compile(source)
        except GrammarError as error:
            result = error
        # A sequence must never wait forever: whatever happens, it gets a result, and the next text is compiled. A panic
        # of the library's Rust code is not an Exception.
        except BaseException:
            logger.exception("a grammar could not be compiled")
            result, keeps = GrammarError("it could not be compiled"), False
        with self._lock:
            seq_ids = self._waiting.pop(source)
            if keeps:
                self._retained[source] = result
                if isinstance(result, UncheckedGrammarError):
                    self._recheck_at[source] = self._clock() + RECHECK_S
                if len(self._retained) > MAX_CACHED:
                    evicted, _ = self._retained.popitem(last=False)
                    self._recheck_at.pop(evicted, None)
            done = [_done(seq_id, result) for seq_id in seq_ids]
        for item in done:
            self._deliver(item)


def _done(seq_id: int, result: GrammarState | GrammarError) -> GrammarDone:
    if isinstance(result, GrammarError):
        return GrammarDone(seq_id, None, str(result))
    return GrammarDone(seq_id, result.fork())
