"""`python llama_server.py MODEL ALIAS PORT`: llama.cpp's own server, with four slots, as `xllamacpp` distributes it.

It runs under any Python that has `xllamacpp`, and needs nothing else of this project. The library has no program of its
own; these are the settings that the shipped policy asks `llama-server` for.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Serve until a signal ends the process."""
    import xllamacpp

    model, alias, port = sys.argv[1:]
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {alias}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = int(port)
    parameters.n_parallel = 4
    parameters.n_ctx = 16384
    # Its threads wait for each other in busy loops, so one more than there are free cores makes all of them slow.
    num_threads = max((os.cpu_count() or 1) - 1, 1)
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = num_threads
    parameters.endpoint_metrics = True
    server = xllamacpp.Server(parameters)
    print(f"listens at {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
