"""Images in a prompt: scaled where they are larger than wanted, refused where they are none, never unpacked blindly."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.trimming import images
from gateway.trimming.images import MAX_WAITING, ImageShrinker
from tests.gateway.stack import policy_text, running


def picture(width: int, height: int, kind: str = "PNG", **options: Any) -> str:
    image = Image.effect_noise((width, height), 40).convert("RGB")
    target = io.BytesIO()
    image.save(target, kind, **options)
    return data_url(target.getvalue(), kind)


def data_url(data: bytes, kind: str = "PNG") -> str:
    return f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode()}"


def sending(*urls: str) -> ChatRequest:
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}} for url in urls]
    message = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, *parts]}
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": [message]}).encode())


def urls_of(request: ChatRequest) -> list[str]:
    document = ChatRequestParser().parse(request.raw).document
    return [part["image_url"]["url"] for part in document["messages"][0]["content"][1:]]


def size_of(url: str) -> tuple[int, int]:
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return image.size


async def test_the_work_is_done_off_the_event_loop() -> None:
    shrinker = ImageShrinker()
    request, cut_tokens = await shrinker.shrink(sending(picture(600, 600)), 100)
    shrinker.close()
    assert size_of(urls_of(request)[0]) == (100, 100)
    assert cut_tokens > 0


async def test_what_finds_no_room_goes_on_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def held(request: ChatRequest, max_side_px: int, max_pixels: int | None) -> tuple[ChatRequest, int]:
        go_on.wait(30)
        return request, 1

    monkeypatch.setattr(images, "_shrunk", held)
    shrinker, request = ImageShrinker(), sending(picture(600, 600))
    waiting = [asyncio.ensure_future(shrinker.shrink(request, 100)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    assert await shrinker.shrink(request, 100) == (request, 0)
    go_on.set()
    assert [cut for _, cut in await asyncio.gather(*waiting)] == [1] * MAX_WAITING
    shrinker.close()


async def test_text_alone_never_reaches_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(images, "_shrunk")
    request = ChatRequestParser().parse(b'{"model": "auto", "messages": [{"role": "user", "content": "hello"}]}')
    assert await ImageShrinker().shrink(request, 100) == (request, 0)


async def test_a_gateway_sends_smaller_images_up_and_counts_what_that_saved(tmp_path: Path) -> None:
    rule = "    trim: {strategies: [downscale_images], max_image_side_px: 128}\n"
    async with running(tmp_path, policy=policy_text(tmp_path).replace("    select:", rule + "    select:", 1)) as stack:
        reply = await stack.call(sending(picture(640, 640)).document)
        bad = await stack.call(sending("data:image/png;base64,AAAA").document)
        lines = (await stack.get("/metrics", admin=True)).body.decode().splitlines()

        assert reply.status == 200
        sent = json.loads(stack.small.received[0].body)["messages"][0]["content"][1]["image_url"]["url"]
    assert size_of(sent) == (128, 128)
    assert (bad.status, bad.error["param"]) == (400, "messages[0].content[1].image_url.url")
    (saved,) = [line for line in lines if line.startswith('penstock_trimmed_tokens_total{strategy="downscale_images"}')]
    assert float(saved.split()[-1]) == (640 * 640 - 128 * 128) // 750
