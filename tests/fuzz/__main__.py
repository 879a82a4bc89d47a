"""`python -m tests.fuzz --seconds 600`: every target in turn, with atheris where it is installed, else by mutation.

A finding ends the target; its input is stored in the corpus, where the tests replay it from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence

from tests.fuzz.corpus import CORPORA, TARGET_NAMES, corpus_of
from tests.fuzz.mutation import MAX_BYTES, mutants


def main(argv: Sequence[str]) -> int:
    """Fuzz. Returns 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of all targets together (default %(default)s)")
    parser.add_argument("--target", action="append", choices=TARGET_NAMES, help="only this one (repeatable)")
    parser.add_argument("--seed", default="", help="of the mutations (default: another one each time)")
    parser.add_argument("--guided", metavar="TARGET", choices=TARGET_NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.guided is not None:
        _run_atheris(options.guided, options.seconds)
        return 0
    names = options.target or TARGET_NAMES
    seed = options.seed or str(random.randrange(10**6))
    is_guided = importlib.util.find_spec("atheris") is not None
    print(f"{'atheris' if is_guided else 'mutation'}, seed {seed}", flush=True)
    fuzz = _guided if is_guided else _mutated
    found = [name for name in names if not fuzz(name, options.seconds / len(names), seed)]
    return int(bool(found))


def _mutated(name: str, seconds: float, seed: str) -> bool:
    """Whether nothing was found."""
    from tests.fuzz.targets import TOKENS, run_target

    stop_at, count = time.monotonic() + seconds, 0
    for data in mutants(list(corpus_of(name).values()), f"{name}:{seed}", TOKENS.get(name, ())):
        if time.monotonic() >= stop_at:
            break
        count += 1
        try:
            run_target(name, data)
        except Exception:  # whatever it is, it is the finding
            path = CORPORA / name / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{name}: FOUND after {count} inputs, stored as {path.name}\n{traceback.format_exc()}", flush=True)
            return False
    print(f"{name}: {count} inputs", flush=True)
    return True


def _guided(name: str, seconds: float, seed: str) -> bool:
    """Whether nothing was found; each target has a process of its own, which a finding ends."""
    command = [sys.executable, "-m", "tests.fuzz", "--guided", name, "--seconds", str(seconds), "--seed", seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    counted = next((line for line in reversed(lines) if line.startswith(("Done", "#"))), "")
    if done.returncode == 0:
        print(f"{name}: {counted}", flush=True)
        return True
    print(f"{name}: FOUND\n{done.stdout}\n" + "\n".join(lines[-40:]), flush=True)
    return False


def _run_atheris(name: str, seconds: float) -> None:
    """Fuzz one target by the coverage of our own packages, which are imported only here; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["gateway", "routing_policies", "engine"]):
        from tests.fuzz.targets import run_target as run

        run(name, b"")
    fresh = tempfile.mkdtemp(prefix="fuzz")
    flags = [f"-max_total_time={max(1, round(seconds))}", f"-max_len={MAX_BYTES}", "-timeout=20", "-rss_limit_mb=3000"]
    found = f"-artifact_prefix={CORPORA / name}/found-"
    atheris.Setup([sys.argv[0], *flags, found, fresh, str(CORPORA / name)], lambda data: run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
