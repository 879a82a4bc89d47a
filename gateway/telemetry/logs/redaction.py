"""Redaction: the positions of secrets in free text. Pure.

The text is searched as it is, and again with its escapes undone: percent, JSON, HTML, control and invisible characters.
A key that an escape hides or splits is found that way, and so is one in base64. Words that only look similar stay:
`task-…`, `the bearer of`, `max_tokens: 5`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from gateway.telemetry.logs.escapes import has_escapes, unescape

REDACTED: Final = "[redacted]"
_MAX_PASSES: Final = 3
"""Number of escape layers undone, such as a URL in JSON in a URL."""

Span = tuple[int, int]

# --- Triggers of a cheap first check: nothing below can match without one of these.
_KEY_TRIGGERS: Final = (
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "hf-", "hf_", "pat-", "pat_", "xox", "ghp", "gho", "ghu", "ghs", "ghr"),
    *("xai", "pplx", "nvapi", "whsec", "tvly", "npm", "fw-", "fw_", "tgp", "r8-", "r8_", "pypi", "jina", "lsv2"),
    "xapp",
)
"""Triggers that count in a text with a hyphen or an underscore only."""
_TRIGGERS: Final = (
    *("akia", "asia", "aiza", "dapi", "sg.", "hvs.", "eyj", "ya29", "private", "bearer", "basic", "auth"),
    *("cookie", "pass", "pwd", "secret", "token", "key", "sig", "code", "session", "credential", "://", "%", "\\", "&"),
)

# --- Keys by their prefix.
_PREFIXED: Final = re.compile(
    r"(?i)(sk|pk|rk|hf|pat|xox[a-z]|gh[pousr]|github_pat|glpat|xai|pplx|nvapi|whsec|tvly|npm|fw|tgp|r8|pypi|jina|lsv2"
    r"|dckr_pat|xapp)[-_]([A-Za-z0-9_-]{8,64})"
)
_WORD_PREFIXES: Final = frozenset({"npm", "fw", "r8", "pypi", "jina"})
"""Prefixes that names of programs and versions begin with, too."""
_KEY_END: Final = re.compile(r"[A-Za-z0-9_-]*")
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_WORDS: Final = re.compile(
    r"(?:[A-Za-z]?[a-z]{0,14}|[A-Z]{1,15})(?:[-_](?:[A-Za-z]?[a-z]{0,14}|[A-Z]{1,15}|[0-9]{1,8}))+"
)
_RANDOM: Final = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{12,}")
_DIGIT: Final = re.compile("[0-9]")
_WORDS_IN_SK: Final = (
    *("ask", "desk", "risk", "disk", "brisk", "whisk", "frisk", "obelisk", "basilisk", "kiosk", "dusk", "tusk"),
    *("husk", "musk", "rusk"),
)

# --- Keys and tokens by their shape.
_SHAPED: Final = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|AIza[0-9A-Za-z_-]{30,}"
    r"|dapi[0-9a-f]{32}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|hvs\.[A-Za-z0-9_-]{20,}"
    r"|ya29\.[0-9A-Za-z_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
)

_LEAST_ENCODED: Final = 16
"""Characters of base64 for a key of twelve."""
_ENCODED: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{_LEAST_ENCODED},}}={{0,2}}")
_PART: Final = re.compile(rf"[A-Za-z0-9+_-]{{{_LEAST_ENCODED},}}={{0,2}}")
_NO_BREAKS: Final = str.maketrans("", "", "\t\r\n")
_URL_SAFE: Final = str.maketrans("-_", "+/")

# --- Credentials behind their scheme.
_SCHEME: Final = re.compile(r"(?i)(bearer|basic)(?=[\s\"'`:=,+\\])[\s\"'`:=,+\\]{1,8}([A-Za-z0-9][^\s\"',;`\\<>]*)")
_AFTER_BEARER: Final = frozenset(
    {
        *("a", "an", "and", "api", "are", "as", "at", "auth", "authentication", "authorisation"),
        *("authorization", "by", "challenge", "credential", "credentials", "error", "error_description"),
        *("expected", "flow", "followed", "for", "format", "from", "header", "headers", "http", "in"),
        *("instead", "invalid", "is", "it", "jwt", "key", "keys", "method", "missing", "must", "no", "not"),
        *("oauth", "oauth2", "of", "on", "only", "or", "prefix", "realm", "required", "scheme", "schemes"),
        *("scope", "security", "string", "that", "the", "this", "to", "token", "tokens", "type", "value"),
        *("values", "was", "were", "with"),
    }
)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}")

# --- Values behind a name that marks them as secret.
_AFTER_NAME: Final = (
    r"[-_]?[0-9]*\\{0,8}[\"']?\]?(?:\s*(?:=>|:=|:|=|>)\s*|(?<=[\"'])\s*,\s*(?=b?\\{0,8}[\"']))(?:b(?=\\{0,8}[\"']))?"
)
_QUOTED: Final = r"\\{1,8}\"(?:[^\"\\]|\\{1,8}[^\"\\])*|\"(?:[^\"\\]|\\.)*|'(?:[^'\\]|\\.)*"
_BARE: Final = r"[^\s\"',;<]+"
_AUTHORIZATION: Final = re.compile(
    rf"(?i)authorization{_AFTER_NAME}(?P<value>{_QUOTED}|{_BARE})(?:\s+(?P<more>[^\s\"',;]+))?"
)
_SCHEMES: Final = frozenset({"bearer", "basic", "token", "digest", "negotiate", "apikey", "aws4-hmac-sha256"})
_COOKIES: Final = re.compile(
    rf"(?i)cookie{_AFTER_NAME}(?P<value>{_QUOTED}"
    r"|[^\s\"',;=]+=[^\s\"',;]*(?:;\s*[^\s\"',;=]+(?:=[^\s\"',;]*)?)*"
    rf"|{_BARE})"
)
_STRONG_NAMES: Final = (
    r"api[-_ ]?key|password|passwd|passphrase|pwd|secret(?:[-_]?(?:access[-_]?)?key)?|access[-_]?key|private[-_]?key"
    r"|(?:access|refresh|id|auth|session|csrf|security)[-_]?token|penstock_(?:session|device|oidc)|signature"
)
_STRONG: Final = re.compile(rf"(?i)(?:{_STRONG_NAMES}){_AFTER_NAME}(?P<value>{_QUOTED}|{_BARE})")
_SECRET_NAME: Final = re.compile(rf"(?i)(?:authorization|cookie|{_STRONG_NAMES})s?[-_]?[0-9]*$")
_FLAG: Final = re.compile(rf"(?i)--[a-z-]{{0,40}}(?:{_STRONG_NAMES}|token)\s+(?P<value>{_QUOTED}|{_BARE})")
_WEAK: Final = re.compile(
    rf"(?i)(?<![A-Za-z0-9])(?:x-)?(?:[a-z]+[-_])?(?:token|(?<!cache[-_])key|sig|code|session|auth|pass|credentials?){_AFTER_NAME}"
    r"(?P<value>\\{0,8}[\"']?(?P<content>[^\s\"',;&<>\\]+))"
)
_NAMED: Final = (_STRONG, _FLAG, _COOKIES)
_USER_INFO: Final = re.compile(r"://([^/\s\"'<>?#]*)@")


def redact(text: str, start: int = 0, stop: int | None = None) -> str:
    """Return `text[start:stop]` without secrets; a secret that reaches into the range is removed whole."""
    stop = len(text) if stop is None else min(stop, len(text))
    if not _may_hold_secrets(text):
        return text[start:stop]
    parts, at = [], start
    for begin, end in find_secrets(text):
        if end <= at or begin >= stop:
            continue
        parts += [text[at : max(begin, at)], REDACTED]
        at = end
    parts.append(text[at:stop])
    return "".join(parts)


def _may_hold_secrets(text: str) -> bool:
    return _is_triggered(text) or not text.isprintable() or next(_find_encoded(text), None) is not None


def _is_triggered(text: str) -> bool:
    lowered = text.lower()
    for trigger in _TRIGGERS:  # a loop is faster here: most texts are names of a few characters
        if trigger in lowered:
            return True
    if "-" in lowered or "_" in lowered:
        for trigger in _KEY_TRIGGERS:
            if trigger in lowered:
                return True
    return False


def is_secret_name(name: str) -> bool:
    """Return whether the value of a field with this name is a secret in any form."""
    return _SECRET_NAME.search(name) is not None


def find_secrets(text: str) -> list[Span]:
    """Return the spans of secrets, in order and without overlap."""
    spans = [*_find(text), *_find_encoded(text)]
    folded, origin = text, list(range(len(text) + 1))
    for _ in range(_MAX_PASSES):
        if not has_escapes(folded):
            break
        folded, lengths = unescape(folded)
        origin = [origin[index] for index in lengths]
        spans += [(origin[begin], origin[end]) for begin, end in _find(folded)]
    return _merged(spans)


def _find(text: str) -> Iterator[Span]:
    yield from _find_prefixed(text)
    yield from (found.span() for found in _SHAPED.finditer(text))
    for found in _SCHEME.finditer(text):
        if _is_credential(found[1], found[2]):
            yield found.span(2)
    for found in _AUTHORIZATION.finditer(text):
        is_scheme = found["value"].lower() in _SCHEMES
        if not found["value"].startswith(REDACTED) and (found["more"] or not is_scheme):
            yield found.span("value")
        if found["more"] and is_scheme:
            yield found.span("more")
    for pattern in _NAMED:
        yield from (found.span("value") for found in pattern.finditer(text) if not found["value"].startswith(REDACTED))
    for found in _WEAK.finditer(text):
        if _is_opaque(found["content"]):
            yield found.span("value")
    yield from (found.span(1) for found in _USER_INFO.finditer(text) if found[1])


def _find_encoded(text: str) -> Iterator[Span]:
    """Yield the spans of base64 whose plain text holds a secret."""
    for found in _ENCODED.finditer(text) if len(text) >= _LEAST_ENCODED else ():
        # A slash is a sign of base64 or of a path; a path's parts are looked at each by itself.
        for part in (found, *_PART.finditer(text, *found.span())) if "/" in found[0] else (found,):
            plain = _decoded(part[0])
            if plain is not None and _is_triggered(plain) and next(_find(plain), None) is not None:
                yield part.span()
                break


def _decoded(encoded: str) -> str | None:
    """Return the text that base64 stands for, None where it is none."""
    if encoded.islower() or encoded.isupper():  # digests and ids
        return None
    encoded = encoded.rstrip("=").translate(_URL_SAFE)
    try:
        plain = b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return None
    return plain if plain.translate(_NO_BREAKS).isprintable() else None


def _find_prefixed(text: str) -> Iterator[Span]:
    found = _PREFIXED.search(text)
    while found is not None:
        if _is_key(text, found):
            end = _KEY_END.match(text, found.end()).end()  # type: ignore[union-attr]
            yield found.start(), end
        else:
            end = found.start(2)  # an apparent word may contain a key
        found = _PREFIXED.search(text, end)


def _is_key(text: str, found: re.Match[str]) -> bool:
    prefix, rest = found[1].lower(), found[2]
    before = text[max(found.start() - 24, 0) : found.start()]
    glued = before[len(before.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) :]
    if prefix.startswith("xox"):
        return True
    if not glued and prefix not in _WORD_PREFIXES:
        if prefix == "sk":
            return not rest.lower().startswith("learn")
        return _WORDS.fullmatch(rest) is None
    if prefix == "sk" and not f"{glued}sk".lower().endswith(_WORDS_IN_SK):
        return not (glued[0].isupper() and rest[0].isupper() and _WORDS.fullmatch(rest))  # Minsk-Moscow-Express
    return _DIGIT.search(rest) is not None and _RANDOM.search(rest) is not None and _UUID.match(rest) is None


def _is_credential(scheme: str, token: str) -> bool:
    """Return whether the word behind `Bearer` or `Basic` is a credential, and not the next word of a sentence."""
    token = token.rstrip(".:)]}!?")
    if scheme.lower() == "basic":
        is_base64 = _BASE64.fullmatch(token) is not None
        return is_base64 and (token.endswith("=") or (len(token) >= 8 and _is_mixed(token)))
    word, separator, _ = token.partition("=")
    if word.lower() in _AFTER_BEARER and (separator or word == token):
        return False
    if _is_mixed(token) or not token.replace("-", "").isalpha():
        return bool(token)
    return scheme[:1].isupper() or len(token) >= 16


def _is_opaque(value: str) -> bool:
    """Return whether a value behind a weak name such as `token` is more than a word or a number."""
    letters = re.sub(r"[^A-Za-z]", "", value)
    if len(value) < 6 or not letters or value.startswith(("[", "http")):
        return False
    has_digit = any(char.isdigit() for char in value)
    return len(value) >= 24 or (has_digit and len(letters) >= 2 and len(value) >= 8) or _is_mixed(value)


def _is_mixed(token: str) -> bool:
    """Return whether the token mixes letters with digits, or cases, unlike any word."""
    has_digit = any(char.isdigit() for char in token)
    has_letter = any(char.isalpha() for char in token)
    inner = token[1:]
    is_camel = any(char.isupper() for char in inner) and any(char.islower() for char in token)
    return (has_digit and has_letter) or is_camel


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
