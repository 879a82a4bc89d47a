"""A context of very many entries: how long a lookup takes, how often it finds the nearest one, memory, start.

The index is called as the cache calls it, in this process, which is why this bench imports the gateway. Entries come in
blocks, each merged into segments before the next; then every query is looked up alone, first once to warm up.
What a lookup should have found is known from comparing each query with every entry in float32. Memory is what the
process grew by from the empty index to the full one; the start is a load of the snapshot, checksum included. Last, the
index is loaded, grown, saved, replaced by a third and dropped beside an event loop, whose pauses are reported, with the
most memory that it had meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gc
import gzip
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from gateway.cache.exact.fingerprint import DIGEST_BYTES
from gateway.cache.index.snapshot import SnapshotUnusable, load_vectors, save_vectors
from gateway.cache.index.vector_index import VectorIndex
from loadtests.cache.index_pauses import Replaced, measured_pauses
from loadtests.cache.vector_source import Drawn, Jittered, Matrix, Source, unit
from loadtests.harness.card import Card
from loadtests.harness.measures import percentile, resident_bytes

_CONTEXT: Final = b"the context"
_DIMENSIONS: Final = 384
_BLOCK: Final = 10_000
_GROWN_ROWS: Final = 4000
"""After the lookups, to see what growth costs the event loop; more than one recent segment."""
_REPLACED: Final = 0.36
"""Of the entries: more than a quarter of each segment is removed then, so that all are written again."""
_SAVE_BLOCKS: Final = 10
_ROWS_PER_TOPIC: Final = 20
_QUESTIONS: Final = "cache/qqp_calibration_questions.csv.gz"
_MEGABYTE: Final = 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--entries", type=int, default=100_000, help="in one context (default %(default)s)")
    parser.add_argument("--queries", type=int, default=2000, help="looked up one by one (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all draws (default %(default)s)")
    real = "folder of evaluation data: entries are its questions' vectors with jitter, instead of drawn ones"
    parser.add_argument("--data", type=Path, help=real)
    snapshot_help = "keep the snapshot here, every 100,000 entries, and go on from it when it is there"
    parser.add_argument("--snapshot", type=Path, help=snapshot_help)


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    if options.data is not None and not (options.data / _QUESTIONS).is_file():
        raise OSError(f"{options.data / _QUESTIONS} is missing; leave --data out to use drawn vectors")
    source = _source(options)
    name, questions = _name(options), _questions(options, source)
    with tempfile.TemporaryDirectory() as folder:
        path = options.snapshot or Path(folder) / "vectors"
        before = resident_bytes()
        index, build_s = await _filled(options, source, path)
        memory = resident_bytes() - before
        found = _look_up(index, questions.queries)
        del index
        gc.collect()
        begun = time.perf_counter()
        num_loaded = len(load_vectors(path, name, _DIMENSIONS))
        load_s = time.perf_counter() - begun
        snapshot_bytes = path.stat().st_size
        grown = source.block(len(_blocks(options)), _GROWN_ROWS)
        replaced = _replaced(options, source)
        pauses = await measured_pauses(path, name, _DIMENSIONS, _CONTEXT, grown, replaced)
    recall = float(np.mean([got == best for got, best in zip(found.best, questions.best, strict=True)]))
    return Card(
        bench="index",
        arrivals=f"{options.queries} lookups one after the other",
        results={
            "entries": options.entries,
            "lookup_p50_ms": percentile(found.seconds, 0.5) * 1e3,
            "lookup_p99_ms": percentile(found.seconds, 0.99) * 1e3,
            "lookup_cpu_p99_ms": percentile(found.cpu_seconds, 0.99) * 1e3,
            "recall_at_1": recall,
            "memory_mb": memory / _MEGABYTE,
            "load_s": load_s,
            "snapshot_mb": snapshot_bytes / _MEGABYTE,
            "build_cpu_s": build_s,
            "vectors": "drawn" if options.data is None else "questions with jitter",
            "query_similarity_p50": float(np.median(questions.similarities)),
            **pauses,
        },
        notes=("recall: the id found first is that of the entry with the highest cosine, in float32, of all",),
        failed=None if num_loaded == options.entries else f"{num_loaded} entries came back from the snapshot",
    )


@dataclass(frozen=True)
class _Questions:
    queries: Matrix
    best: list[bytes]
    similarities: Matrix


@dataclass(frozen=True)
class _Found:
    best: list[bytes | None]
    seconds: list[float]
    cpu_seconds: list[float]


def _source(options: argparse.Namespace) -> Source:
    if options.data is None:
        return Drawn(_DIMENSIONS, max(1, options.entries // _ROWS_PER_TOPIC), options.seed)
    return Jittered(_encoded(options.data / _QUESTIONS), options.seed)


def _blocks(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Number and rows of each block."""
    sizes = [min(_BLOCK, options.entries - begin) for begin in range(0, options.entries, _BLOCK)]
    return list(enumerate(sizes))


def _questions(options: argparse.Namespace, source: Source) -> _Questions:
    """Queries near entries from everywhere, each with what is nearest to it of all."""
    rng = np.random.default_rng((options.seed, 2))
    targets = np.sort(rng.choice(options.entries, min(options.queries, options.entries), replace=False))
    queries = np.concatenate(
        [
            source.near(block[targets[(targets >= begin) & (targets < begin + rows)] - begin], rng)
            for number, rows in _blocks(options)
            for begin, block in [(number * _BLOCK, source.block(number, rows))]
        ]
    )
    best = np.full(len(queries), -2.0, np.float32)
    ids = np.zeros(len(queries), np.int64)
    for number, rows in _blocks(options):
        cosines = queries @ source.block(number, rows).T
        places = cosines.argmax(axis=1)
        nearest = cosines[np.arange(len(queries)), places]
        ids = np.where(nearest > best, places + number * _BLOCK, ids)
        best = np.maximum(nearest, best)
    return _Questions(queries, [_exact(int(place)) for place in ids], best)


async def _filled(options: argparse.Namespace, source: Source, path: Path) -> tuple[VectorIndex, float | None]:
    """The full index and the CPU seconds that it took; None where part of it was there from an earlier run."""
    name = _name(options)
    index = _begun(path, name)
    num_before = len(index)
    build_s = 0.0
    for number, rows in _blocks(options):
        if (number + 1) * _BLOCK <= num_before:
            continue
        block = source.block(number, rows)
        begun = time.process_time()
        for place, vector in enumerate(block, number * _BLOCK):
            index.add(_CONTEXT, _exact(place), vector)
        while index.compact():
            pass
        build_s += time.process_time() - begun
        await asyncio.sleep(0)  # where a signal to stop is taken
        if options.snapshot is not None and (number + 1) % _SAVE_BLOCKS == 0:
            save_vectors(index, path)
            print(f"{len(index)} entries after {build_s:.0f} s of CPU", file=sys.stderr, flush=True)
    begun = time.process_time()
    while index.compact():  # what an earlier run left undone
        pass
    build_s += time.process_time() - begun
    save_vectors(index, path)
    return index, None if num_before else build_s


def _replaced(options: argparse.Namespace, source: Source) -> Replaced:
    """Entries from everywhere, and new ones."""
    count, first = round(_REPLACED * options.entries), len(_blocks(options)) + 1
    gone = np.random.default_rng((options.seed, 3)).choice(options.entries, count, replace=False)
    blocks = [source.block(first + number, _BLOCK) for number in range(-(-count // _BLOCK))]
    return Replaced(gone=[_exact(int(place)) for place in gone], rows=np.concatenate(blocks)[:count])


def _name(options: argparse.Namespace) -> str:
    """In the place of an encoder's: only a snapshot of the same entries is gone on from."""
    return f"bench {options.entries} {options.seed} {'drawn' if options.data is None else 'questions'}"


def _begun(path: Path, name: str) -> VectorIndex:
    """What an earlier run left, else an empty one."""
    try:
        return load_vectors(path, name, _DIMENSIONS)
    except SnapshotUnusable:
        return VectorIndex(_DIMENSIONS, name)


def _look_up(index: VectorIndex, queries: Matrix) -> _Found:
    for query in queries:
        index.nearest(_CONTEXT, query)
    found = _Found([], [], [])
    for query in queries:
        begun, cpu_begun = time.perf_counter(), time.thread_time()
        neighbours = index.nearest(_CONTEXT, query)
        found.seconds.append(time.perf_counter() - begun)
        found.cpu_seconds.append(time.thread_time() - cpu_begun)
        found.best.append(neighbours[0].exact if neighbours else None)
    return found


def _encoded(path: Path) -> Matrix:
    """Vectors of the questions, by the encoder that comes with the gateway; minutes on one core."""
    from gateway.embedding.graph import build_graph
    from gateway.embedding.make import encoder_id, graph_file
    from gateway.embedding.model_files import installed_model
    from gateway.embedding.onnx_encoder import OnnxEncoder

    with gzip.open(path, "rt", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    files = installed_model()
    with tempfile.TemporaryDirectory() as folder:
        graph = graph_file(Path(folder), files, "int8").make(lambda: build_graph(files, "int8"))
        encoder = OnnxEncoder(graph, files, encoder_id(files, "int8"))
    return unit(np.concatenate([encoder.encode(texts[begin : begin + 64]) for begin in range(0, len(texts), 64)]))


def _exact(place: int) -> bytes:
    """Return an id of the length that ids in the cache have."""
    return place.to_bytes(DIGEST_BYTES, "little")
