"""Process that compiles untrusted grammars first: `python -m engine.sampling.grammar_check`.

Some schemas of a few hundred bytes take minutes and gigabytes to compile, and nothing can interrupt the compiler. So
each is compiled here first, under an alarm that ends the process; a grammar that passes is safe in the core.
Frames on stdin and stdout have a 4-byte big-endian length and UTF-8 text. The input is a grammar, the output its
error (empty: none). The first frame of the output reports that the tokenizer is loaded.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from engine.sampling.grammar import GrammarError, compile_grammar, load_grammar_tokenizer

LENGTH_BYTES = 4


def read_text(stream: IO[bytes]) -> str | None:
    """Read the next frame's text; None at the end of the stream."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    body = stream.read(length)
    return body.decode() if len(body) == length else None


def write_text(stream: IO[bytes], text: str) -> None:
    """Write one frame."""
    body = text.encode()
    stream.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    stream.flush()


def serve_checks(requests: IO[bytes], replies: IO[bytes], model_dir: Path, vocab_size: int, limit_s: float) -> None:
    """Check grammars until the end of `requests`; SIGALRM ends the process if one takes longer than `limit_s`."""
    fault = ""
    try:
        tokenizer = load_grammar_tokenizer(model_dir, vocab_size)
    except GrammarError as error:
        fault = str(error)
    write_text(replies, fault)
    while not fault and (source := read_text(requests)) is not None:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            compile_grammar(tokenizer, source)
            reply = ""
        except GrammarError as error:
            reply = str(error)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_text(replies, reply)


def main(arguments: Sequence[str] | None = None) -> None:
    """Check grammars on the standard streams."""
    parser = argparse.ArgumentParser(prog="python -m engine.sampling.grammar_check")
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--limit-s", type=float, required=True)
    options = parser.parse_args(arguments)
    # Ctrl-C reaches the whole process group; this process ends with the core, whose end closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve_checks(sys.stdin.buffer, sys.stdout.buffer, options.model_dir, options.vocab_size, options.limit_s)


if __name__ == "__main__":
    main()
