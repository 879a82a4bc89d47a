"""`python -m deploy.images [gateway] [engine]`: build images without a daemon, start them as a pod, check them.

Prints times and findings as JSON. Ends with 1 when an image is not as its manifest expects, 3 when none can be built.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, get_args

from deploy.images.build import ROOT, Image, ImageBuilder
from deploy.images.manifest import engine_spec, gateway_spec
from deploy.images.pod import USER, ContainerSpec
from deploy.images.tools import obstacles

_CACHE: Final = Path("/var/cache/penstock-images")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m deploy.images", description=__doc__)
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="gateway, engine (default: both)")
    parser.add_argument("--cache", type=Path, default=_CACHE, help="base, wheels and images (default %(default)s)")
    parser.add_argument("--output", type=Path, help="file that gets the JSON too")
    options = parser.parse_args(arguments)
    wanted = [image for image in get_args(Image) if not options.images or image in options.images]
    if unknown := set(options.images) - set(get_args(Image)):
        parser.error(f"unknown image: {', '.join(sorted(unknown))}")
    if reasons := obstacles():
        print("no image can be built here:", *reasons, sep="\n  ", file=sys.stderr)
        return 3
    options.cache.mkdir(parents=True, exist_ok=True)
    report = build_and_probe(ImageBuilder(cache=options.cache), wanted)
    text = json.dumps(report, indent=2)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")
    return 1 if report["faults"] else 0


def build_and_probe(builder: ImageBuilder, images: Sequence[Image]) -> dict[str, Any]:
    """Return times in seconds, what was seen of each container, and every fault."""
    seconds: dict[str, float] = {}
    for image in images:
        started_at = time.monotonic()
        builder.build(image)
        seconds[image] = round(time.monotonic() - started_at, 1)
    started_at = time.monotonic()
    with containers(builder, images) as specs:
        seen = started_as_a_pod(specs)
    seconds["probes"] = round(time.monotonic() - started_at, 1)
    return {"seconds": seconds, "seen": seen, "faults": faults(specs, seen)}


@contextmanager
def containers(builder: ImageBuilder, images: Sequence[Image]) -> Iterator[list[ContainerSpec]]:
    """Mount each image while the block runs; engines come first, as the gateway waits for one."""
    made: list[str] = []
    specs: list[ContainerSpec] = []
    try:
        for image in sorted(images):
            name = f"localhost/penstock-{image}:0.1.0"
            made.append(builder.buildah("from", "--pull-never", name))
            root = builder.buildah("mount", made[-1])
            config = json.loads(builder.buildah("inspect", "--type=image", name))["OCIv1"]["config"]
            specs.append(
                engine_spec(root, config)
                if image == "engine"
                else gateway_spec(root, config, with_engine="engine" in images)
            )
        yield specs
    finally:
        for container in made:
            builder.buildah("rm", container)


def started_as_a_pod(specs: Sequence[ContainerSpec]) -> dict[str, Any]:
    """Run `deploy.images.pod` in namespaces of its own and return what it saw."""
    namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*namespaces, sys.executable, "-m", "deploy.images.pod"],
        cwd=ROOT,
        input=json.dumps([asdict(spec) for spec in specs]),
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the pod ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def faults(specs: Sequence[ContainerSpec], seen: dict[str, Any]) -> list[str]:
    """Return what is not as the manifests of Kubernetes expect, one sentence each."""
    found = []
    for spec in specs:
        state = seen[spec.name]
        written = {folder for folder, done in state["writes"].items() if done}
        if written != set(spec.writable):
            found.append(f"{spec.name}: writes to {sorted(written)}, its volumes are {sorted(spec.writable)}")
        if not state["read_only"]:
            found.append(f"{spec.name}: its root is writable")
        if (state["uid"], state["capabilities"], state["no_new_privs"]) != (USER, 0, "1"):
            found.append(f"{spec.name}: runs as {state['uid']} with capabilities {state['capabilities']:x}")
        if state["exit"] != 0:
            found.append(f"{spec.name}: ends with {state['exit']} after SIGTERM")
    if len(specs) > 1 and not seen["answer"]:
        found.append("the answer through gateway and engine is empty")
    return found


if __name__ == "__main__":
    sys.exit(main())
