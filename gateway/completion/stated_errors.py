"""Errors that an upstream states inside a 200 answer, in any of their shapes."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

ERROR_EVENT: Final = "error"
_UNNAMED: Final = frozenset({"message", ERROR_EVENT})
_FAILED_REASONS: Final = frozenset(
    {
        *("abort", "aborted", "cancelled", "canceled", "timeout", "interrupted", "failed", "failure"),
        *("disconnected", "insufficient_system_resource"),
    }
)
"""Finish reasons of a broken-off answer, besides all that name an error."""
_LOOSE_KEYS: Final = frozenset(
    {"detail", "message", "msg", "errors", "error_message", "error_msg", "error_code", "fault", "status_msg"}
)
"""Keys, in lower case, that mark a document without choices as an error."""
_STATUS_KEYS: Final = (
    *("raw_status_code", "http_status_code", "status_code", "statuscode", "http_status", "http_code"),
    *("code", "status", "error_code", "type", "error_type", "__type"),
)
"""Keys, in lower case, under which errors name a status by number or by word."""
_MAX_WORD: Final = 128
_NO_LETTER: Final = re.compile(r"[^a-z0-9]+")
_WORD_END: Final = re.compile(r"(?:error|exception)$")
_STATUS_OF_WORD: Final = {
    **dict.fromkeys(("invalidrequest", "badrequest", "invalidargument", "invalidvalue", "invalidparameter"), 400),
    **dict.fromkeys(("unsupportedparameter", "contextlengthexceeded", "exceedcontextsize"), 400),
    **dict.fromkeys(("contentpolicyviolation", "contentfilter"), 400),
    **dict.fromkeys(("authentication", "invalidapikey", "unauthorized", "unauthenticated"), 401),
    **dict.fromkeys(("billing", "paymentrequired"), 402),
    **dict.fromkeys(("permission", "permissiondenied", "forbidden", "accessdenied"), 403),
    **dict.fromkeys(("notfound", "modelnotfound", "resourcenotfound"), 404),
    **dict.fromkeys(("requesttoolarge", "payloadtoolarge"), 413),
    **dict.fromkeys(("unprocessableentity", "validation"), 422),
    **dict.fromkeys(("ratelimit", "ratelimitexceeded", "resourceexhausted", "insufficientquota"), 429),
    **dict.fromkeys(("toomanyrequests", "throttling", "throttled", "servicetiercapacityexceeded"), 429),
    **dict.fromkeys(("overloaded", "serveroverloaded", "serverisoverloaded", "serviceunavailable", "unavailable"), 503),
}
"""Status for the words of common servers where no number is given: lower case, without marks or a final `error`."""


class StatedError(msgspec.Struct, frozen=True):
    """An upstream's error, in its own words."""

    status: int | None = None
    """Status that the error names by number or by word; None: the upstream failed."""
    body: bytes = b""
    """The error as JSON, for `enveloped`."""
    is_standard: bool = False
    """True for an event with `error` in OpenAI's form, which clients recognise."""


def document_of(data: bytes) -> Any:
    """Return the JSON document in `data`, also with the NaN that some servers write; None for other input."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # most often for an infinite log-probability
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def stated_error(document: Any, event: str = "message") -> StatedError | None:
    """Return the error that a plain answer or an event's data states, or None when it states none.

    `event` is the event's name. Errors are: any event named `error`; a non-empty `error`; an object or a type of that
    name; and, without choices, what web frameworks and gateways send in its place, such as `detail`. Some servers put
    an error into a list of its own.
    """
    if isinstance(document, list) and len(document) == 1:
        return stated_aside(document[0]) if isinstance(document[0], dict) and "error" in document[0] else None
    if not isinstance(document, dict):
        return StatedError(None, msgspec.json.encode({"error": {}})) if event == ERROR_EVENT else None
    error = document.get("error")
    extension = document.get("x_groq")
    if isinstance(extension, dict) and extension.get("error"):
        return _stated(extension["error"], document)
    if error or event == ERROR_EVENT or ERROR_EVENT in (document.get("object"), document.get("type")):
        return _stated(error if error else document, document)
    if document.get("choices") is None and _has_failed_base(document):
        return _stated(document["base_resp"], document)
    if "choices" in document or event not in _UNNAMED or document.get("type") == "ping":
        return None
    if document.get("usage") or not any(value and key.lower() in _LOOSE_KEYS for key, value in document.items()):
        return None
    return _stated(document, document)


def stated_aside(document: Any) -> StatedError | None:
    """Return the error that is stated where clients do not read: beside the events of a stream, or in a list."""
    error = stated_error(document)
    return None if error is None else msgspec.structs.replace(error, is_standard=False)


def stated_in_choice(choice: dict[str, Any]) -> StatedError | None:
    """Return the error of one choice: its own `error`, or a finish reason of an answer that was broken off."""
    error = choice.get("error")
    if error:
        return _stated(error, choice)
    return StatedError() if is_failed_reason(choice.get("finish_reason")) else None


def is_failed_reason(reason: object) -> bool:
    """Return whether this finish reason means that the answer was broken off; a content filter's does not."""
    if isinstance(reason, dict):
        reason = reason.get("type")
    return isinstance(reason, str) and (reason.lower() in _FAILED_REASONS or "error" in reason.lower())


def _stated(error: Any, document: dict[str, Any]) -> StatedError:
    status = _status_in(error) if isinstance(error, dict) else None
    if status is None:
        status = _status_in(document)
    detail = document.get("detail")
    if error is document and isinstance(detail, str):
        error = {"message": detail}
    return StatedError(status, _encoded({"error": error}), bool(document.get("error")))


def _encoded(document: Any) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (OverflowError, TypeError, RecursionError):  # an integer beyond 64 bits
        return b'{"error":{}}'


def _has_failed_base(document: dict[str, Any]) -> bool:
    """Return whether `base_resp`, where some servers put the status, holds anything but success."""
    base = document.get("base_resp")
    return isinstance(base, dict) and bool(base.get("status_code"))


def _status_in(stated: dict[str, Any]) -> int | None:
    named = {key.lower(): value for key, value in stated.items() if isinstance(value, int | str)}
    for key in _STATUS_KEYS:
        value = named.get(key)
        if isinstance(value, str):
            value = int(value) if len(value) == 3 and value.isdecimal() else _status_of(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None


def _status_of(word: str) -> int | None:
    word = word.rpartition("#")[2] if len(word) < _MAX_WORD else ""
    plain = _NO_LETTER.sub("", word.lower())
    return _STATUS_OF_WORD.get(_WORD_END.sub("", plain))
