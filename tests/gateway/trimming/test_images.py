"""Images in a prompt: scaled where they are larger than wanted, refused where they are none, never unpacked blindly."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.errors import InvalidRequest
from gateway.trimming import images
from gateway.trimming.image_scaling import shrunk
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


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_large_image_is_scaled_to_the_longer_side_in_its_own_format(kind: str) -> None:
    after, cut_tokens = shrunk(sending(picture(800, 400, kind)), 200)
    (url,) = urls_of(after)
    assert size_of(url) == (200, 100)
    assert url.startswith(f"data:image/{kind.lower()};base64,")
    assert cut_tokens == (800 * 400 - 200 * 100) // 750
    assert after.document["messages"][0]["content"][1]["image_url"]["detail"] == "low"


def test_the_same_image_becomes_the_same_bytes_so_that_prefixes_still_match() -> None:
    request = sending(picture(600, 600))
    assert shrunk(request, 100)[0].raw == shrunk(request, 100)[0].raw


def test_a_small_image_goes_on_untouched() -> None:
    request = sending(picture(64, 64))
    assert shrunk(request, 64) == (request, 0)


def test_an_animation_keeps_all_its_frames() -> None:
    frames = [Image.new("RGB", (300, 300), color) for color in ("red", "blue")]
    target = io.BytesIO()
    frames[0].save(target, "WEBP", save_all=True, append_images=frames[1:])
    request = sending(data_url(target.getvalue(), "WEBP"))
    assert shrunk(request, 100) == (request, 0)


def test_a_picture_that_lies_on_its_side_is_turned_before_the_note_about_it_is_lost() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn a quarter clockwise
    after, _ = shrunk(sending(picture(800, 400, "JPEG", exif=exif)), 200)
    assert size_of(urls_of(after)[0]) == (100, 200)


def test_a_bomb_is_refused_from_its_header() -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = (b"IHDR" + header, b"IDAT" + zlib.compress(bytes(1000)))
    packed = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(packed)
    with pytest.raises(InvalidRequest) as caught:
        shrunk(sending(picture(10, 10), data_url(bomb)), 100)
    assert caught.value.param == "messages[0].content[2].image_url.url"
    assert "pixels" in caught.value.message, "it is a PNG, and only too large"


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,####",
        "data:image/png;base64,",
        "data:image/png,plain",
        data_url(b"GIF89a but not really"),
    ],
    ids=["no base64", "nothing", "not base64 at all", "no image"],
)
def test_what_is_no_image_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        shrunk(sending(url), 100)
    assert caught.value.param == "messages[0].content[1].image_url.url"


def test_a_truncated_image_is_refused() -> None:
    data = base64.b64decode(picture(500, 500).partition(",")[2])
    with pytest.raises(InvalidRequest):
        shrunk(sending(data_url(data[: len(data) // 2])), 100)


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


def test_an_image_that_would_take_more_memory_than_there_is_stays_as_it_is() -> None:
    request = sending(picture(800, 400, "PNG"))
    assert shrunk(request, 200, 800 * 400 - 1) == (request, 0)
    assert shrunk(request, 200, 800 * 400)[1] > 0
