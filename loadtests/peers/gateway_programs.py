"""How other gateways are started in front of one upstream: their command, configuration and headers."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from loadtests.clients.http_client import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command that serves on a port, and what its clients must send."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    """Of every request, besides those of OpenAI's API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProgram:
    """One gateway that may be installed on this machine."""

    name: str
    program: str
    """Executable, or the script of a Node package."""
    launch: Callable[[str, Address, int, Path], Launch]
    """(path of the program, upstream, port to serve, folder for files) → how to start it."""
    install: str
    """Where it comes from."""
    distribution: str = ""
    """Python distribution that has the version; empty for a program that says it with `-v`."""


def find_program(program: str, folders: Sequence[Path]) -> str | None:
    """Return the path of a program in one of the folders, or on the search path; None when it is not installed."""
    for folder in folders:
        candidate = folder / program
        if candidate.is_file():
            return str(candidate)
    return shutil.which(program)


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _nginx(path: str, upstream: Address, port: int, folder: Path) -> Launch:
    """One worker that keeps connections to the upstream open and forwards streams unbuffered."""
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {folder}/nginx-body; proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-f; uwsgi_temp_path {folder}/nginx-u; scgi_temp_path {folder}/nginx-s;
  keepalive_requests 1000000000;
  upstream engine {{ server 127.0.0.1:{upstream.port}; keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""
    )
    return Launch(argv=[path, "-c", str(configuration), "-p", str(folder)])


def _litellm(path: str, upstream: Address, port: int, folder: Path) -> Launch:
    """The proxy with one worker, one model and no database."""
    configuration = folder / "litellm.yaml"
    parameters = {"model": "openai/scripted", "api_base": f"{upstream.url}/v1", "api_key": "none"}
    model = {"model_name": "scripted", "litellm_params": parameters}
    settings = {"model_list": [model], "litellm_settings": {"telemetry": False, "num_retries": 0}}
    configuration.write_text(json.dumps(settings))  # JSON is YAML
    arguments = ["--config", str(configuration), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    environment = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    return Launch(argv=[path, *arguments], environment=environment)


def _portkey(path: str, upstream: Address, port: int, _folder: Path) -> Launch:
    """The open gateway without its console; the request's headers name the upstream."""
    headers = (
        ("x-portkey-provider", "openai"),
        ("x-portkey-custom-host", f"{upstream.url}/v1"),
        ("authorization", "Bearer none"),
    )
    environment = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
    return Launch(argv=["node", path, f"--port={port}", "--headless"], environment=environment, headers=headers)


def _smg(path: str, upstream: Address, port: int, _folder: Path) -> Launch:
    """Shepherd Model Gateway in front of one worker."""
    arguments = ["launch", "--worker-urls", upstream.url, "--host", "127.0.0.1", "--port", str(port)]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    return Launch(argv=[path, *arguments, "--policy", "round_robin", "--log-level", "error", *metrics])


def _vllm_router(path: str, upstream: Address, port: int, _folder: Path) -> Launch:
    """vLLM's router in front of one worker."""
    arguments = ["--worker-urls", upstream.url, "--host", "127.0.0.1", "--port", str(port)]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    return Launch(argv=[path, *arguments, "--policy", "round_robin", "--log-level", "error", *metrics])


PROGRAMS: Mapping[str, GatewayProgram] = MappingProxyType(
    {
        one.name: one
        for one in (
            GatewayProgram(name="nginx", program="nginx", launch=_nginx, install="Debian: nginx-light"),
            GatewayProgram(name="smg", program="smg", launch=_smg, install="PyPI: smg", distribution="smg"),
            GatewayProgram(
                name="vllm-router",
                program="vllm-router",
                launch=_vllm_router,
                install="PyPI: vllm-router",
                distribution="vllm-router",
            ),
            GatewayProgram(
                name="litellm",
                program="litellm",
                launch=_litellm,
                install="PyPI: litellm[proxy]",
                distribution="litellm",
            ),
            GatewayProgram(
                name="portkey",
                program="@portkey-ai/gateway/build/start-server.js",
                launch=_portkey,
                install="npm: @portkey-ai/gateway",
            ),
        )
    }
)
