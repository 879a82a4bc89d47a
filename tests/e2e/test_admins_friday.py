"""An admin's Friday: a bound is changed on live traffic, found to be worse, and taken back by itself; and what holds
while policies change: no request fails, every replica follows, and nothing is lost when a gateway is killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.access.local_token import read_token
from tests.gateway.admin.handlers.test_policy import POLICY, apply, in_force, stored
from tests.gateway.cli.test_policy_commands import Shell, shell
from tests.gateway.scripted import ScriptedUpstream, Wire, chunk
from tests.gateway.stack import Reply, Stack, chat, encode, policy_text

pytestmark = pytest.mark.e2e
PATIENCE_S = 60.0
_people = itertools.count()


async def answers_nonsense(wire: Wire) -> None:
    """What the large model has come to after its latest training."""
    body = json.loads(chunk("nonsense", finish="stop").removeprefix(b"data: "))
    message = {"role": "assistant", "content": "nonsense"}
    body |= {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    await wire.answer(json.dumps(body).encode())


class Product:
    """Calls, checks what it gets, and states when it is nonsense."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.statuses: list[int] = []

    async def call(self) -> None:
        reply = await self._stack.call(chat(user=f"person-{next(_people)}"))
        self.statuses.append(reply.status)
        if reply.status == 200 and reply.json["choices"][0]["message"]["content"] == "nonsense":
            reported = {"request_id": reply.headers["x-request-id"], "verdict": "wrong"}
            await self._stack.call(reported, path="/v1/feedback")

    async def send_until(self, is_over: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await is_over():
                await self.send_some()

    async def send_some(self) -> None:
        """As many at once as the deployment takes that comes first."""
        await asyncio.gather(*(self.call() for _ in range(6)))


async def test_a_bad_idea_on_a_friday_is_taken_back_by_itself_and_the_history_reports_who_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shell(tmp_path, capsys, **{"telemetry.recorder.mode": "features"}) as sh:
        sh.stack.large.otherwise = answers_nonsense
        product = Product(sh.stack)
        for _ in range(10):
            await product.send_some()
        await _change_a_bound(sh)
        code, out, err = await sh.run(
            *("policy", "canary", "start", str(sh.folder / "friday.yaml"), "--percent", "10", "--yes"),
            *("--reason", "the large model is better"),
        )
        assert (code, "10 % of the traffic" in out) == (0, True), err

        async def is_over() -> bool:
            return (await sh.json("policy", "canary", "status"))["canary"] is None

        await product.send_until(is_over)
        code, out, _ = await sh.run("policy", "history")
        assert "by local: the large model is better; rolled back by system: wrong: " in out
        assert out.splitlines()[0].split()[0] == "1"  # no revision was made of it
        assert set(product.statuses) == {200}
        after = [await sh.stack.call(chat(user=f"later-{number}")) for number in range(20)]
        assert {reply.headers["x-penstock-deployment"] for reply in after} == {"small"}
        audit = (await sh.json("audit", "list"))["entries"]
        assert [entry["action"] for entry in audit[:2]] == ["canary.rolled_back", "canary.start"]
        worse = [metric for metric in audit[0]["detail"]["metrics"] if metric["verdict"] == "worse"]
        assert [metric["name"] for metric in worse] == ["wrong"]


async def _change_a_bound(sh: Shell) -> None:
    """Change, check, plan: on the command line, with nothing in force yet."""
    now = (tmp := sh.folder / "policy.yaml").read_text()
    changed = now.replace("candidates: [small, large]", "candidates: [large, small]").replace(
        "total_ms: 20000", "total_ms: 30000", 1
    )
    typo = sh.file(changed.replace("timeouts:", "timeout:", 1), "friday.yaml")
    code, out, _ = await sh.run("policy", "check", typo)
    assert (code, 'did you mean "timeouts"' in out) == (1, True)
    file = sh.file(changed, "friday.yaml")
    assert (await sh.run("policy", "check", file))[0] == 0
    code, out, _ = await sh.run("policy", "plan", file)
    assert code == 0
    assert "~ route main: timeouts.total_ms 20000 → 30000" in out
    assert "reaches: every tenant; routes: main" in out
    assert "deployment large: 0.0% → 100.0%" in out
    assert (await sh.json("policy", "diff", str(tmp))) == []


async def test_apply_bad_apply_and_rollback_under_load_fail_no_request_and_reach_three_replicas(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite3"
    async with AsyncExitStack() as exits:
        await exits.enter_async_context(asyncio.timeout(PATIENCE_S * 2))
        stacks = []
        for name in ("one", "two", "three"):
            (tmp_path / name).mkdir()
            stacks.append(await exits.enter_async_context(stored(tmp_path / name, store)))
        replies: list[Reply] = []
        is_over = asyncio.Event()
        clients = [asyncio.create_task(_client(stack, replies, is_over)) for stack in stacks for _ in range(4)]
        seed = await in_force(stacks[0])
        good = seed["document"].replace("total_ms: 20000", "total_ms: 30000")
        applied = await apply(stacks[0], good, etag=seed["etag"])
        assert applied.status == 200
        await _until_everywhere(stacks, applied.json["etag"])
        bad = await apply(
            stacks[1], good.replace("candidates: [small]", "candidates: [ghost]"), etag=applied.json["etag"]
        )
        assert bad.status == 400
        assert (await in_force(stacks[2]))["etag"] == applied.json["etag"]
        body = {"revision": 1, "reason": "back"}
        headers = {"if-match": applied.json["etag"]}
        back = await stacks[2].call(body, admin=True, path=f"{POLICY}/rollback", headers=headers)
        await _until_everywhere(stacks, back.json["etag"])
        is_over.set()
        await asyncio.gather(*clients)
        assert len(replies) >= 12
        assert {reply.status for reply in replies} == {200}
        revisions = {reply.headers["x-penstock-policy"] for reply in replies}
        assert revisions <= {seed["revision"]["revision"], applied.json["revision"]["revision"]}


async def _client(stack: Stack, replies: list[Reply], is_over: asyncio.Event) -> None:
    while not is_over.is_set():
        replies.append(await stack.call(chat(user=f"person-{next(_people)}")))


async def _until_everywhere(stacks: list[Stack], etag: str) -> None:
    for stack in stacks:
        while (await in_force(stack))["etag"] != etag:
            await asyncio.sleep(0.01)


class Killable:
    """A gateway in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Until its admin listener answers."""
        (self.folder / "admin.sock").unlink(missing_ok=True)
        command = (sys.executable, "-m", "gateway", "gateway", "--config", str(self.folder / "penstock.toml"))
        with (self.folder / "log").open("ab") as sink:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=sink, stderr=sink, env=dict(os.environ)
            )
        while True:
            try:
                await self.call(None, path="/readyz", method="GET")
                return
            except (OSError, ValueError, IndexError):
                assert self._process.returncode is None, (self.folder / "log").read_text()[-3000:]
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Without a word."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def call(self, body: Any, **how: Any) -> Reply:
        """One request to the admin listener, as the local admin."""
        headers = {**how.pop("headers", {})}
        if (self.folder / "admin.token").exists():
            headers["authorization"] = f"Bearer {read_token(self.folder / 'admin.token')}"
        reader, writer = await asyncio.open_unix_connection(str(self.folder / "admin.sock"))
        writer.write(encode(body, headers=headers, **how))
        raw = await reader.read()
        writer.close()
        return Reply(raw)


@asynccontextmanager
async def killable(folder: Path) -> AsyncIterator[Killable]:
    (folder / "policy.yaml").write_text(policy_text(folder))
    lines = [
        f'public.listen = "unix:{folder}/public.sock"',
        f'admin.listen = "unix:{folder}/admin.sock"',
        f'policy.document = "{folder}/policy.yaml"',
        f'process.runtime_dir = "{folder}"',
        'policy.source = "store"',
    ]
    (folder / "penstock.toml").write_text("\n".join(lines))
    made = Killable(folder)
    async with ScriptedUpstream(folder / "small.sock"), ScriptedUpstream(folder / "large.sock"):
        try:
            yield made
        finally:
            await made.kill()


async def test_a_revision_and_a_key_outlive_a_kill(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S * 2), killable(tmp_path) as gateway:
        await gateway.start()
        seed = (await gateway.call(None, path=POLICY, method="GET")).json
        document = seed["document"].replace("routes:\n", "tenants: [{id: shop}]\nroutes:\n")
        body = {"document": document, "reason": "a tenant"}
        applied = await gateway.call(body, path=POLICY, method="PUT", headers={"if-match": seed["etag"]})
        made = await gateway.call({"tenant": "shop"}, path="/admin/api/keys")
        assert (applied.status, made.status) == (200, 201)
        await gateway.kill()
        await gateway.start()
        now = (await gateway.call(None, path=POLICY, method="GET")).json
        assert now["etag"] == applied.json["etag"]
        (key,) = (await gateway.call(None, path="/admin/api/keys", method="GET")).json["keys"]
        assert (key["tenant"], key["state"]) == ("shop", "active")
        assert (await gateway.call(None, path="/admin/api/audit/verify", method="GET")).json["ok"] is True
