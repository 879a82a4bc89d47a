"""Client of the process that compiles grammars first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from llguidance import LLTokenizer

from engine.sampling.grammar import (
    GrammarError,
    GrammarState,
    UncheckedGrammarError,
    compile_grammar,
    load_grammar_tokenizer,
)
from engine.sampling.grammar_check import read_text, write_text

CHECK_LIMIT_S = 0.5
"""Time limit for one grammar's compilation; legitimate ones take milliseconds."""


class GrammarChecker:
    """Owner of the checking process, which it restarts after a grammar ended it. Not thread-safe."""

    def __init__(self, model_dir: Path, vocab_size: int, limit_s: float = CHECK_LIMIT_S) -> None:
        self._command = [
            *(sys.executable, "-m", "engine.sampling.grammar_check"),
            *("--model-dir", str(model_dir), "--vocab-size", str(vocab_size), "--limit-s", str(limit_s)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process if it is not running. Raises GrammarError if the tokenizer is unusable, OSError."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        fault = read_text(self._process.stdout)
        if fault is None:
            raise UncheckedGrammarError("grammars cannot be checked: the checking process ended at its start")
        if fault:
            raise GrammarError(fault)

    def check(self, source: str) -> None:
        """Check that the grammar compiles within the limit. Raises GrammarError with the reason, OSError."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_text(self._process.stdin, source)
            fault = read_text(self._process.stdout)
        except BrokenPipeError:
            fault = None
        if fault is None:
            self.close()
            raise UncheckedGrammarError("it takes too long to compile; make it simpler")
        if fault:
            raise GrammarError(fault)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class CheckedCompiler:
    """Compiler of grammars that have passed the checking process. Not thread-safe."""

    def __init__(self, checker: GrammarChecker, model_dir: Path, vocab_size: int) -> None:
        self._checker = checker
        self._model_dir = model_dir
        self._vocab_size = vocab_size
        self._tokenizer: LLTokenizer | None = None

    def prepare(self) -> None:
        """Load the tokenizer and start the checking process. Raises GrammarError, OSError."""
        if self._tokenizer is None:
            self._tokenizer = load_grammar_tokenizer(self._model_dir, self._vocab_size)
        self._checker.start()

    def compile(self, source: str) -> GrammarState:
        """Return the state at the grammar's start. Raises GrammarError, OSError."""
        self.prepare()
        assert self._tokenizer is not None
        self._checker.check(source)
        return compile_grammar(self._tokenizer, source)
