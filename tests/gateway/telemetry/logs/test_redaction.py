"""Secrets are taken out of free text in every spelling, and words that are alike stay."""

from __future__ import annotations

import io
import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

import pytest

from gateway.telemetry.logs.log import MAX_TEXT_CHARS, LogWriter, clean
from gateway.telemetry.logs.redaction import redact

KEY = "abcdefgh12345678"
OPAQUE = "q9Zr2LmX7vTb4KwY"
SECRETS = [
    # next to a letter, a digit, a sign
    *(f"xsk-{KEY}", f"keysk-{KEY}", f"tokensk-{KEY}", f"mysk_{KEY}", f"Xsk-{KEY}", f"2sk-{KEY}", f"_sk-{KEY}"),
    *(f"apisk-{KEY}", "xsk-abcdefghijklmnop", f"=sk-{KEY}", f"sk-{KEY}x", f"é sk-{KEY}", f"ésk-{KEY}", f"SK-{KEY}"),
    *(f"task-sk-{KEY}", f"task-{KEY}sk-{KEY}", f"risk-averse-sk-{KEY}", f"datask-{KEY}"),
    # other vendors' keys
    *(f"xxoxb-{KEY}", f"pk_live_{OPAQUE}", f"rk_live_{OPAQUE}", f"hf_{OPAQUE}", f"pat-penstock-{OPAQUE}"),
    *(f"ghp_{OPAQUE}{OPAQUE}", f"github_pat_{OPAQUE}", f"glpat-{OPAQUE}", f"gsk_{OPAQUE}", f"xai-{OPAQUE}"),
    *(f"tvly-{OPAQUE}", f"npm_{OPAQUE}", f"r8_{OPAQUE}", f"fw_{OPAQUE}", f"pypi-{OPAQUE}", f"tgp_v1_{OPAQUE}"),
    *(f"jina_{OPAQUE}", f"lsv2_pt_{OPAQUE}", f"dckr_pat_{OPAQUE}", f"xapp-1-{OPAQUE}", f"SG.{OPAQUE}.{OPAQUE}"),
    *(f"hvs.{OPAQUE}{OPAQUE}", "dapi9f86d081884c7d659a2feaa0c55ad015"),
    *("AKIAIOSFODNN7EXAMPLE", "keyAKIAIOSFODNN7EXAMPLE", f"AIza{OPAQUE}{OPAQUE}"),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
]
SCHEMES = [
    *(f"Bearer {OPAQUE}", f"bearer {OPAQUE}", f"BEARER {OPAQUE}", f"xBearer {OPAQUE}", f'"Bearer {OPAQUE}"'),
    *(f'Bearer "{OPAQUE}"', f"Bearer '{OPAQUE}'", f'"Bearer" "{OPAQUE}"', f"'Bearer', '{OPAQUE}'", f"Bearer: {OPAQUE}"),
    *(f"Bearer={OPAQUE}", f"Bearer\t{OPAQUE}", f"Bearer\n{OPAQUE}", f"Bearer+{OPAQUE}", f"Bearer%20{OPAQUE}"),
    *(f"Bearer\\u0020{OPAQUE}", f'\\"Bearer {OPAQUE}\\"', f'Bearer \\"{OPAQUE}\\"', f"'Bearer {OPAQUE}'"),
    *("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "basic dXNlcjpwYXNz", 'Basic "dXNlcjpwYXNz"', "Bearer topsecretword"),
]
NAMED = [
    *('{"api_key":"%s"}', '{"api_key": "%s"}', "{'api_key': '%s'}", '{\\"api_key\\":\\"%s\\"}', "OPENAI_API_KEY=%s"),
    *("x-api-key: %s", "X-Api-Key:%s", "apikey=%s", "password=%s", "REDIS_PASSWORD=%s", "mypassword: %s", "pwd=%s"),
    *("password2=%s", "client_secret=%s", "clientSecret=%s", "aws_secret_access_key = %s", "--password %s"),
    *("--api-key '%s'", "refresh_token=%s", '"access_token":"%s"', "Cookie: a=b; penstock_session=%s; c=d"),
    *(
        "set-cookie: penstock_session=%s; Path=/",
        "Authorization: %s",
        "authorization: Basic %s",
        '"authorization":"%s"',
    ),
    *(
        "(b'authorization', b'Bearer %s')",
        "[('x-api-key', '%s')]",
        "<password>%s</password>",
        "proxy-authorization: %s",
    ),
    *("https://h/x?api_key=%s", "https://h/x?a=b&token=%s&c=d", "https://h/x?access_token=%s#f", "https://h?key=%s"),
    *("GET /v1?sig=%s HTTP/1.1", "X-Amz-Signature=%s", "https://user:%s@host/x", "redis://:%s@host:6379/0"),
    *("token: %s", "GITHUB_TOKEN=%s", "Authorization: Token %s", "postgresql+psycopg://u:%s@h/db", "api key: %s"),
]
ORDINARY = [
    *("task-1", "task-20260101-nightly-run", "risk-averse-strategy", "disk-usage-high", "desk-lamp-holder"),
    *(
        "mask-language-model",
        "ask-me-anything-please",
        "flask-application",
        "helpdesk-escalation",
        "kiosk-mode-enabled",
    ),
    *("task_queue_is_full", "asterisk-separated-values", "Minsk-Moscow-Express", "sk-learn-pipeline", "dusk-till-dawn"),
    "task-550e8400-e29b-41d4-a716-446655440000",
    *("npm_config_registry", "npm-package-v2beta", "fw_version_12_release", "r8_release", "jina_reader", "pypi-mirror"),
    *("dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVy", "/v1/chat/completions/internationalization"),
    *("benchmark-results-table", "network_interface_name", "framework-agnostic-code", "work-stealing-queue"),
    *(
        "compat-layer-testing",
        "hf-internal-testing/tiny-random",
        "pk_users_orders",
        "fork-join-pool",
        "apk-downloads-list",
    ),
    *("the bearer of bad news", "bearer token required", "Send 'Authorization: Bearer' with an API token."),
    *(
        "Basic understanding of it",
        "a basic configuration problem",
        "Basic auth is off",
        'Bearer realm="penstock-admin"',
    ),
    *(
        "expected a Bearer token",
        "the secretary came",
        "passwordless login",
        "two cookies, three passwords",
        "tokenizer: x",
    ),
    *(
        "max_tokens: 500",
        "max_tokens=4096",
        "prompt_tokens=12 completion_tokens=7",
        "monkey=banana",
        "keyboard: qwerty",
    ),
    *("first token: 12 ms", "token: expected", "key: missing", "code: 404", "code=insufficient", "?code=404&x=1"),
    *("https://host:8080/path", "https://host/a@b", "http://[::1]:8081/admin/", "user@example.org", "unix:/run/p.sock"),
    *(
        "gpt-4o-mini",
        "meta-llama/Llama-3.1-8B-Instruct",
        "100%",
        "50%20of",
        "C:\\new\\table",
        "req_0123456789abcdef01234567",
    ),
    *(
        "naïve café",
        "你好",
        "a\tb\nc",
        "compass: north",
        "Authorize first",
        "author: Anna",
        "authors=3",
        "passage: one",
    ),
    *("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "signature mismatch", "keys: 12"),
]
SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "percent-encoded": lambda text: quote(text, safe=""),
    "every character percent-encoded": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent-encoded twice": lambda text: quote(quote(text, safe=""), safe=""),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"detail": text})),
    "unicode escapes": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "hex escapes": lambda text: "".join(f"\\x{ord(char):02x}" for char in text),
    "an escaped hyphen": lambda text: text.replace("-", "\\u002d"),
    "zero-width spaces": lambda text: "\u200b".join(text),
    "soft hyphens": lambda text: "\xad".join(text),
    "colours of a terminal": lambda text: "\x1b[31m".join(text),
    "null characters": lambda text: "\x00".join(text),
    "HTML entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "in a sentence": lambda text: f"upstream said: ({text}).",
}


def pieces(text: str) -> list[str]:
    """Parts of the secrets above, none of which may be seen."""
    known = (
        KEY,
        OPAQUE,
        "abcdefghijklmnop",
        "IOSFODNN7",
        "dozjgNry",
        "MIIEow",
        "QWxhZGRp",
        "dXNlcjpw",
        "topsecretword",
        "9f86d081884c7d659a2feaa0c55ad015",
    )
    return [secret for secret in known if secret in text]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_taken_out_in_every_spelling(spelling: str) -> None:
    for text in (*SECRETS, *SCHEMES, *(form % OPAQUE for form in NAMED)):
        if spelling == "every character percent-encoded" and not text.isascii():
            continue
        written = SPELLINGS[spelling](text)
        cleaned = clean(written)
        assert pieces(text)
        for secret in pieces(text):
            for hidden in (secret, SPELLINGS[spelling](secret), SPELLINGS[spelling](secret[-8:])):
                assert hidden not in cleaned, (written, cleaned)
        assert clean(cleaned) == cleaned


@pytest.mark.parametrize("text", ORDINARY)
def test_words_that_are_alike_stay(text: str) -> None:
    for written in (text, f"({text})", f"see {text} there", text.upper() if "bearer" not in text.lower() else text):
        assert redact(written) == written


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode], ids=["base64", "base64 for URLs"])
@pytest.mark.parametrize("form", ["%s", "key %s here", "data:text/plain;base64,%s", '{"a": "%s"}', "https://h/a/%s/b"])
def test_a_secret_in_base64_is_taken_out(encode: Callable[[bytes], bytes], form: str) -> None:
    for secret in (
        f"sk-{KEY}",
        f"Bearer {OPAQUE}",
        f'{{"api_key": "{OPAQUE}"}}',
        f"a=1&password={OPAQUE}",
        f"sk-{KEY}\n",
    ):
        for padding in ("", " ", "  ", "  \u00ff"):
            encoded = encode((padding + secret).encode()).decode()
            for written in (encoded, encoded.rstrip("=")):
                assert written not in redact(form % written), (secret, padding)


def test_what_stands_around_a_secret_stays() -> None:
    for text, cleaned in {
        f"GET /v1?a=1&api_key={KEY}": "GET /v1?a=1&api_key=[redacted]",
        f"https://h/x?token={OPAQUE}&page=2": "https://h/x?token=[redacted]&page=2",
        f"a xsk-{KEY} b keysk-{KEY}, c": "a x[redacted] b key[redacted], c",
        '{"password":"two words","model":"m"}': '{"password":[redacted]","model":"m"}',
        f"Bearer%20{OPAQUE}%20end": "Bearer%20[redacted]%20end",
        "redis://:pa@ss@host:6379": "redis://[redacted]@host:6379",
    }.items():
        assert clean(text) == cleaned


@pytest.mark.parametrize("length", [*range(24), 500])
def test_a_cut_shows_no_part_of_a_secret(length: int) -> None:
    filler = "word " * 1000
    beginning = filler[: MAX_TEXT_CHARS - length]
    for secret in (f" sk-{OPAQUE}", f" Bearer {OPAQUE}", f" https://user:{OPAQUE}@host "):
        assert OPAQUE[:4] not in clean(beginning + secret + filler)
        stream = io.BytesIO()
        log = LogWriter(stream)
        log.failure("failed", ValueError(secret + filler[: MAX_TEXT_CHARS - length - 1]))
        log.flush()
        assert OPAQUE[-4:] not in stream.getvalue().decode()


def test_values_inside_values_are_clean_too() -> None:
    class Odd:
        def __str__(self) -> str:
            return f"xsk-{KEY}"

    stream = io.BytesIO()
    log = LogWriter(stream)
    log.event("x", detail={"list": [f"keysk-{KEY}", {"deep": f"Bearer {OPAQUE}"}], f"sk-{KEY}": 1, "number": 2})
    log.event("y", password="plain", headers={"Authorization": "opensesame", "x-api-key": "a b"}, odd=Odd(), tokens=7)
    log.flush()
    text = stream.getvalue().decode()
    assert not any(secret in text for secret in (KEY, OPAQUE, "plain", "opensesame", "a b"))
    first, second = (json.loads(line) for line in text.splitlines())
    assert first["detail"]["number"] == 2
    assert (second["headers"]["Authorization"], second["tokens"]) == ("[redacted]", 7)


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "sk-",
            "ask-",
            "a",
            "\\",
            '\\"',
            "%25",
            "Bearer ",
            "password=",
            '"',
            "'",
            "://",
            "@",
            "cookie: a=b; ",
            "-",
            "&amp;",
        ),
        *(
            "://a",
            "cookie:a=",
            "a=b;",
            "eyJ",
            "eyJaaaaaaaaa.",
            "-----BEGIN PRIVATE KEY-----",
            "Bearer\\",
            "password\\",
            "token",
        ),
        *(
            "password ",
            'password: "',
            "authorization ",
            "key-",
            "--password ",
            "[",
            "1",
            "b'",
            "=>",
            "\u200b",
            "\x1b[",
            "\x1b[0",
        ),
    ],
)
def test_no_text_takes_long(unit: str) -> None:
    for text in (unit * 4000, f"token{unit * 4000}", f"password={unit * 4000}"):
        began = time.thread_time()
        clean(text)
        assert time.thread_time() - began < 0.5
