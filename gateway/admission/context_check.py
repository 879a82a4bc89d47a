"""A lower bound on a prompt's tokens, from its bytes alone: enough to refuse a prompt that fits nowhere.

The gateway does not tokenise. A prompt refused here could not fit with any tokenizer in use. All others go to the
engine, which counts exactly. A prompt has at least as many tokens as each of four counts:

    messages   a chat template marks each of them, and two never share a token
    bytes      a token has at most 128 of blanks or of one sign, 64 of letters or digits, 32 of emoji
    words      between white space; a token is within one word, and four are allowed for in case it is not
    content    bytes that are left once repetitions are taken out; no token holds 16 bytes of new content
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

from gateway.chat.operation import CHAT, COMPLETIONS
from gateway.chat.request import ChatRequest
from gateway.chat.schema import AssistantMessage, ChatTextPart, Message
from gateway.errors import InvalidRequest

MAX_BYTES_PER_TOKEN: Final = 128
"""Longest token of common vocabularies, in bytes: runs of spaces in GPT-4's and its relatives'. Text averages 3 to 5.
"""
MAX_LETTERS_PER_TOKEN: Final = 64
"""Longest token of letters and digits, in bytes; `translatesAutoresizingMaskIntoConstraints` has 41."""
MAX_EMOJI_BYTES_PER_TOKEN: Final = 32
"""Longest token of characters beyond the first 65,536, four bytes each: emoji and rare scripts."""
MAX_WORDS_PER_TOKEN: Final = 4
MAX_CONTENT_PER_TOKEN: Final = 16
"""Maximum number of content bytes per token.

English has about two, a list of a vocabulary's longest words twelve.
"""
_LEAST_BYTES_PER_TOKEN: Final = 8
"""Fewest bytes a token for every count to be meaningful: the shortest word has one and a blank."""

_SHORTENING: Final = frozenset({"truncate_prompt_tokens", "truncation", "transforms"})
"""Fields of other servers by which a client lets its prompt be cut to fit."""
_REASONING_ENDS: Final = "</think>"
_BLANKS: Final = b" \t\n\v\f\r"
_WORD_BYTES: Final = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") | {*range(128, 256)}
_LETTERS: Final = bytes(byte for byte in _WORD_BYTES if byte < 128)
_IDEOGRAPH_LEADS: Final = bytes(range(0xE4, 0xEE))
"""First bytes of Chinese characters and of Korean syllables, three bytes each."""
_EMOJI_LEADS: Final = bytes(range(0xF0, 0xF5))
_SHAPES: Final = bytes(ord("x") if byte in _WORD_BYTES else ord(" ") for byte in range(256))
_SIGNS: Final = bytes(byte for byte in range(256) if byte not in _WORD_BYTES and byte not in _BLANKS)
_PIECE_BYTES: Final = 256 * 1024


def may_be_hopeless(request: ChatRequest, context_tokens: int | None) -> bool:
    """Return whether `refuse_hopeless` could refuse the request, by its body's length, an upper bound on its text's."""
    return context_tokens is not None and len(request.raw) > context_tokens * _LEAST_BYTES_PER_TOKEN


def refuse_hopeless(request: ChatRequest, context_tokens: int | None) -> None:
    """Refuse a prompt that is surely longer than `context_tokens`.

    Takes time in proportion to the prompt's length where it `may_be_hopeless`.

    Raises:
        InvalidRequest: The prompt is too long (`context_length_exceeded`).
    """
    if context_tokens is None or not may_be_hopeless(request, context_tokens):
        return
    if not _SHORTENING.isdisjoint(request.document):
        return
    if request.operation is not CHAT:
        _refuse_long_prompt(request, context_tokens)
        return
    texts = [text for message in request.messages for text in _texts_of(message)]
    num_tokens = least_tokens([*texts, *_descriptions_of(request)])
    num_tokens = max(num_tokens, len(request.messages))
    if num_tokens > context_tokens:
        raise InvalidRequest(
            f"`messages` must fit into the largest context here, {context_tokens} tokens; got a prompt of over "
            f"{num_tokens} tokens. Shorten it.",
            param="messages",
            code="context_length_exceeded",
        )


def _refuse_long_prompt(request: ChatRequest, context_tokens: int) -> None:
    """Refuse the first of several prompts that is surely too long; each has the whole context."""
    name = "prompt" if request.operation is COMPLETIONS else "input"
    for place, message in enumerate(request.messages):
        num_tokens = least_tokens([_text_of(message)])
        if num_tokens > context_tokens:
            path = f"{name}[{place}]" if len(request.messages) > 1 else name
            raise InvalidRequest(
                f"`{path}` is over {num_tokens} tokens long, more than the {context_tokens} that the largest context "
                "here holds. Shorten it.",
                param=path,
                code="context_length_exceeded",
            )


def least_tokens(texts: list[bytes]) -> int:
    """Return a lower bound on the tokens of these texts, whatever the tokenizer."""
    num_words = sum(map(_num_words, texts))
    counts = (
        sum(map(_weight, texts)) // MAX_BYTES_PER_TOKEN,
        num_words // MAX_WORDS_PER_TOKEN,
        _content_bytes(texts) // MAX_CONTENT_PER_TOKEN,
    )
    return max(counts)


def _weight(text: bytes) -> int:
    """Return the size of a text where a token has at most `MAX_BYTES_PER_TOKEN`, whatever it consists of."""
    num_letters = len(text) - len(text.translate(None, _LETTERS))
    num_ideographs = len(text) - len(text.translate(None, _IDEOGRAPH_LEADS))
    num_emoji = len(text) - len(text.translate(None, _EMOJI_LEADS))
    num_emoji_bytes, num_letters = 4 * num_emoji, num_letters + 3 * num_ideographs
    num_others = len(text) - num_letters - num_emoji_bytes
    return (
        num_others
        + num_letters * (MAX_BYTES_PER_TOKEN // MAX_LETTERS_PER_TOKEN)
        + num_emoji_bytes * (MAX_BYTES_PER_TOKEN // MAX_EMOJI_BYTES_PER_TOKEN)
    )


def _num_words(text: bytes) -> int:
    """Return the number of runs of letters and digits between white space; signs inside of them do not count."""
    shape = text.translate(_SHAPES, _SIGNS)
    return shape.count(b"x ") + shape.endswith(b"x")


def _content_bytes(texts: list[bytes]) -> int:
    """Return the size of the texts after compression."""
    packer = zlib.compressobj(1)
    size = sum(len(packer.compress(piece)) for text in texts for piece in _pieces(text))
    return size + len(packer.flush())


def _pieces(text: bytes) -> Iterator[bytes]:
    return (text[begin : begin + _PIECE_BYTES] for begin in range(0, len(text), _PIECE_BYTES))


def _texts_of(message: Message) -> Iterator[bytes]:
    """Yield the texts of a message that chat templates put into the prompt, the arguments of its tool calls too."""
    yield _text_of(message)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls or ():
            if call.function is not None:
                yield call.function.arguments.encode()
        if message.function_call is not None:
            yield message.function_call.arguments.encode()


def _descriptions_of(request: ChatRequest) -> Iterator[bytes]:
    """Yield the descriptions of offered tools and of their parameters, which templates render in any format."""
    if request.fields.tool_choice == "none":
        return
    functions = [tool.function for tool in request.fields.tools or () if tool.function is not None]
    waiting: list[Any] = [function.parameters for function in functions]
    yield from ((function.description or "").encode() for function in functions)
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("description"), str):
                yield part["description"].encode()
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _text_of(message: Message) -> bytes:
    """Return the text that every chat template puts into the prompt, without outer blanks or earlier thoughts."""
    content = message.content
    if isinstance(content, str):
        text = content
    else:
        text = " ".join([part.text for part in content or () if isinstance(part, ChatTextPart)])
    if isinstance(message, AssistantMessage):
        text = text.rpartition(_REASONING_ENDS)[2]
    return text.strip().encode()
