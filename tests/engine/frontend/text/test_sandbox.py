"""Chat templates run in a sandbox with bounds on time, loops and output."""

from __future__ import annotations

import itertools

import pytest

from engine.frontend.request.requests import Message
from engine.frontend.text.chat_template import ChatTemplate
from engine.frontend.text.sandbox import TemplateError
from tests.engine.frontend.text.test_chat_template import NONCE, template, text_of


def growing(expression: str, start: str = "'xx'") -> str:
    """A template that makes ever more of a value."""
    return (
        f"{{% set ns = namespace(s={start}) %}}{{% for i in range(99) %}}{{% set ns.s = {expression} %}}{{% endfor %}}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ 'x' * 10000000000 }}",
        "{{ [0] * 10000000000 }}",
        "{{ 10 ** 10000000 }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ '%10000000000d' % 1 }}",
        "{% for i in range(10000000000) %}{% endfor %}",
        "{{ messages | tojson(indent=1000000000) }}",
        "{{ messages | tojson(indent=' ' * 1000) }}",
        "{{ 1 // 0 }}",
        "{{ missing.attribute }}",
        "{{ messages[7].content.x.y }}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        growing("ns.s ~ ns.s"),
        growing("ns.s + ns.s"),
        growing("ns.s + ns.s", "[0]"),
        growing("ns.s | replace('x', 'xx')"),
        growing("ns.s.replace('x', 'xx')"),
        growing("ns.s | join(ns.s)"),
        growing("ns.s.join(ns.s)"),
        growing("ns.s * ns.s", "3"),
        growing("ns.s ** 64", "3"),
        growing("[ns.s, ns.s]") + "{{ ns.s }}",
        growing("[ns.s, ns.s]") + "{{ ns }}",
        growing("[ns.s, ns.s]") + "{{ [ns] ~ '' }}",
        growing("[ns.s, ns.s]") + "{{ ns.s | tojson }}",
        growing("[ns.s, ns.s]") + "{{ ns.s | string }}",
        growing("{'a': ns.s, 'b': ns.s}") + "{{ ns.s.values() }}",
        growing("[ns.s] | string", "'\\\\'"),
        growing("ns.s | tojson", "'\\\\'"),
        growing("ns.s.replace('x'.encode(), 'xx'.encode())", "'x'.encode()"),
        "{% block b %}{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}{% endblock %}",
        "{% for m in messages %}{{ m.content.__class__.__mro__ }}{{ m.content.join.__self__.__class__() }}{% endfor %}",
        "{% block b %}{{ ''.join.__self__.__class__.__subclasses__() }}{% endblock %}",
        "{% for m in messages %}{{ m.content.replace('h', 'i', count=1, other=2) }}{% endfor %}",
        "{{ 1 | round(1000000000, 'floor') }}",
        "{{ (1).to_bytes(10000000000, 'big') }}",
        "{{ 'x'.translate({120: 'x' * 1000}) }}",
    ],
)
def test_the_sandbox_ends_what_is_dangerous_or_endless(source: str) -> None:
    with pytest.raises(TemplateError):
        template(source).segments([Message("user", "hi")])


LOOPS = "{% set s = 'x' * 1000 %}{% for a in s %}{% for b in s %}{% for c in s %}{% endfor %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        LOOPS,
        LOOPS.replace("in s %}", "in s if false or a != 'x' or s | sort == [] %}", 1),
        "{% macro m(n) %}{% if n %}{{ m(n - 1) ~ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% macro check_time() %}{% endmacro %}" + LOOPS,
    ],
)
def test_a_template_that_writes_nothing_has_no_more_time_than_others(source: str) -> None:
    ticks = itertools.count()
    slow = ChatTemplate(source, {}, [], nonce=lambda: NONCE, clock=lambda: next(ticks) / 100)

    with pytest.raises(TemplateError, match=r"took longer than 5\.0 s"):
        slow.segments([Message("user", "hi")])


def test_joining_adding_and_replacing_stay_what_they_were() -> None:
    source = (
        "{{ messages | join('-', attribute='role') }} {{ ['a', 1] | join }} {{ ', '.join(['b', 'c']) }}"
        " {{ 'a' ~ 1 ~ none }} {{ 'aXbX' | replace('X', '..') }} {{ 'aXbX'.replace('X', '.', 1) }}"
        " {{ ([1] + [2]) | length }} {{ 2.567 | round(1) }}"
        " {% for m in messages if m.role == 'user' %}{{ loop.index }}{% endfor %} {{ 3 * 4 + 2 ** 5 }}"
    )

    rendered = text_of(template(source).segments([Message("system", "x"), Message("user", "y")]))

    assert rendered == "system-user a1 b, c a1None a..b.. a.bX 2 2.6 1 44"


def test_output_is_bounded() -> None:
    source = "{% for i in range(100000) %}{{ messages[0].content }}{% endfor %}"
    with pytest.raises(TemplateError, match="exceeds"):
        template(source).segments([Message("user", "x" * 1000)])
