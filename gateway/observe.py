"""`penstock diagnose`: what a running gateway says about itself and the engines behind it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gateway.admin_client import add_connection, open_client


def add_diagnose(commands_of: Any) -> None:
    """`penstock diagnose`."""
    parser = commands_of.add_parser("diagnose", help="say which stage is slow, why, and which line to change; 1 if any")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long to watch, 0.2 to 60 (default %(default)g)"
    )
    add_connection(parser)
    parser.set_defaults(command=diagnose)


def diagnose(options: argparse.Namespace) -> int:
    """Watch for some seconds and say what is slow; 1 when anything is."""
    from gateway.diagnosis.render import render

    with open_client(options) as client:
        found = client.get(f"diagnosis?seconds={options.seconds:g}")
    print(json.dumps(found) if options.json else render(found))
    return 1 if found["findings"] else 0
