"""The first request of a new installation, ready to paste."""

from __future__ import annotations

import shlex

from gateway.cli.supervisor.probe import base_url_of

QUESTION = "What is 12 plus 30?"


def first_request(public: str, *, needs_key: bool, is_tls: bool = False) -> str:
    """Return one example request, for curl and for OpenAI's library."""
    if public.startswith("unix:"):
        path = shlex.quote(public.removeprefix("unix:"))
        return _curl("http://penstock", f" --unix-socket {path}", needs_key=needs_key)
    base = base_url_of(public, is_tls=is_tls)
    return f"{_curl(base, '', needs_key=needs_key)}\n\n{_python(base, needs_key=needs_key)}"


def _curl(base: str, option: str, *, needs_key: bool) -> str:
    key = ' -H "authorization: Bearer $OPENAI_API_KEY"' if needs_key else ""
    body = f'{{"model": "auto", "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'
    return f"curl{option} {base}/v1/chat/completions -H 'content-type: application/json'{key} \\\n  -d '{body}'"


def _python(base: str, *, needs_key: bool) -> str:
    key = "" if needs_key else ', api_key="none"'
    return (
        "from openai import OpenAI\n"
        f'client = OpenAI(base_url="{base}/v1"{key})\n'
        f'messages = [{{"role": "user", "content": "{QUESTION}"}}]\n'
        'print(client.chat.completions.create(model="auto", messages=messages).choices[0].message.content)'
    )
