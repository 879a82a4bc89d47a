"""Compiles grammars beside the step loop: one at a time, each text once, the results kept for the next request."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from engine.sampling.grammar import MAX_GRAMMAR_BYTES, GrammarError, GrammarState

logger = logging.getLogger(__name__)

MAX_KEPT = 64
"""Compiled grammars, and texts known to be wrong, that are kept; the least recently used go first."""


@dataclass(frozen=True, slots=True)
class GrammarDone:
    """What became of a sequence's grammar: a state of its own at the start, or what is wrong."""

    seq_id: int
    state: GrammarState | None
    error: str | None = None


class Compile(Protocol):
    """Makes a state at the start of a grammar; owns whatever that takes. Used from one thread."""

    def prepare(self) -> None:
        """Load what the first grammar needs. Raises GrammarError, OSError."""

    def compile(self, source: str) -> GrammarState:
        """Raises GrammarError when the text is at fault, OSError when the machine is."""


class Grammars(Protocol):
    """Where the scheduler has grammars compiled."""

    def request(self, seq_id: int, source: str) -> None:
        """Have this grammar compiled for a sequence; the step loop gets exactly one `GrammarDone` later."""


class GrammarCompiler:
    """`request` from the step loop's thread; results go to `deliver`, from this class's own thread or in the call."""

    def __init__(self, compiler: Compile, deliver: Callable[[GrammarDone], None]) -> None:
        self._compiler = compiler
        self._deliver = deliver
        self._lock = threading.Lock()
        # Under the lock: results by text, and who waits for which text.
        self._kept: OrderedDict[str, GrammarState | GrammarError] = OrderedDict()
        self._waiting: dict[str, list[int]] = {}
        self._jobs: SimpleQueue[str] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="grammars", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def request(self, seq_id: int, source: str) -> None:
        """Have this grammar compiled for a sequence; exactly one `GrammarDone` follows."""
        if len(source) > MAX_GRAMMAR_BYTES:
            self._deliver(GrammarDone(seq_id, None, f"it exceeds the limit of {MAX_GRAMMAR_BYTES} bytes"))
            return
        with self._lock:
            kept = self._kept.get(source)
            if kept is None:
                is_new = source not in self._waiting
                self._waiting.setdefault(source, []).append(seq_id)
            else:
                self._kept.move_to_end(source)
        if kept is not None:
            self._deliver(_done(seq_id, kept))
        elif is_new:
            self._jobs.put(source)

    def _run(self) -> None:
        while True:
            # Also after a grammar that brought the checking process down, so that the next need not wait for it.
            self._prepare()
            self._work(self._jobs.get())

    def _prepare(self) -> None:
        try:
            self._compiler.prepare()
        except (GrammarError, OSError) as error:
            # Every request will meet it again and be told; here there is nobody to tell.
            logger.warning("grammars cannot be served: %s", error)

    def _work(self, source: str) -> None:
        result: GrammarState | GrammarError
        keeps = True
        try:
            result = self._compiler.compile(source)
        except GrammarError as error:
            result = error
        # A sequence must never wait for ever; whatever went wrong, it is told, and the next text gets its turn. A panic
        # of the library's Rust code is no Exception.
        except BaseException:
            logger.exception("a grammar could not be compiled")
            result, keeps = GrammarError("it could not be compiled"), False
        with self._lock:
            seq_ids = self._waiting.pop(source)
            if keeps:
                self._kept[source] = result
                if len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            done = [_done(seq_id, result) for seq_id in seq_ids]
        for item in done:
            self._deliver(item)


def _done(seq_id: int, result: GrammarState | GrammarError) -> GrammarDone:
    if isinstance(result, GrammarError):
        return GrammarDone(seq_id, None, str(result))
    return GrammarDone(seq_id, result.fork())
