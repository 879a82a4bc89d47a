"""CodeTokens: the parts of a text in which each sign and the case of each letter counts, as in code.

Flags, operators, sigils, brackets, slices, patterns, paths and identifiers. Signs of prose do not count: prices,
percentages, `and/or`, emphasis, the brackets around a remark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.cache.grammar.word_lists import CODE_WORDS, words_of

_QUOTED: Final = re.compile(r"`([^`]+)`")
_SIGNS: Final = re.compile(
    r"[\\$@#%^&*=<>{}\[\]|~_+/`]|--|[a-z][A-Z]|(?<!\S)-\w|\w-{2}|\(\)|::|[?!]\.|[KMGT]i?b(?:ps)?\b|\b[A-Za-z]!"
    r"|(?<!\S):[a-z]|(?<!\S)\?[?:](?!\S)"
    r"|(?:UTC|GMT)[+-]\d|\w\([^()]*\)|(?<!\S)!\w|(?<!\S)(?![A-Z] & [A-Z])[A-Za-z] [*/%&|^+-] [A-Za-z\d](?![\w'])"
)
"""Any sign that can make a piece of text code."""
_PROSE: Final = re.compile(
    r"[$€£¥₹]\d[\d.,]*[a-z]*|[\d.,]+[a-z]*[$€£¥₹]|~?[+-]?\d[\d.,]*%|\d[\d.,/:*x+-]*[a-z]*|#\d+|[a-z]{1,2}#|[a-z]\+{1,2}"
    r"|[a-z]+(?:[/&+]\w+)+|\w+\((?:s|es)\)|\d+(?:\(\w+\))+|_+|\*{3,}|@\w{3,}|\w[\w.+-]*@[\w.-]+|#[a-z]\w{3,}|[#•>]",
    re.IGNORECASE,
)
_FLAG: Final = re.compile(r"[-+]{1,2}[A-Za-z][\w-]*(?:=\S*)?|-\d[\d.]*")
_STRICT: Final = re.compile(
    r"(?:UTC|GMT)[+-]\d|[\\$@^*=<>{}\[\]|~_]|\w[+-]{2}|[+-]{2}\w|[%&#!]\w|::|->|[?!]\.|\w\(\)|[a-z]\+=|^:[a-z]"
)
_CALL: Final = re.compile(r"(?:[a-z_][\w.]*|[A-Z]\w*\.\w[\w.]*)\((?:[a-z]|[^)]*[\"'\d,][^)]*)\)|[A-Za-z]\(\w+\)")
_BRACKETS: Final = re.compile(r"(?<=[\w\])>])[(\[{][^()\[\]{}]{0,60}[)\]}]")
"""Brackets directly behind a name, in which white space does not count."""
_EXPRESSION: Final = re.compile(r"(?<!\S)(?![A-Z] & [A-Z])[A-Za-z] [*/%&|^+-] [A-Za-z\d](?![\w'])")
"""An operator between two letters, or a letter and a digit; `R & D` is a name."""
_IN_LANGUAGE: Final = re.compile(r"\b(?:in|using|with) (?:C|R|Go)(?! (?:major|minor|sharp|flat))(?![\w.'-])")
"""A language of programming whose name is a letter or a word."""
_SUM: Final = re.compile(r"(?=.*[a-z])(?:[a-z]|\d+)(?:[-+*/](?:[a-z]|\d+))+")
_LITERAL: Final = re.compile(r"([\"'])\d+\1")
_DOTTED: Final = re.compile(r"(?<![\w@/.])[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+(?![\w@(])")
_TYPES: Final = words_of(
    "string integer boolean object array list map set double float char byte long short function symbol int true false "
    "none null void fn error tuple dict vector option result iterator pair optional"
)
"""Names that are another one with a capital."""
_DOMAINS: Final = words_of("js ts com org net io ai gov edu uk de fr eu co dev app tv me")
"""Last parts of names that are written in any case."""
_PATH: Final = re.compile(r"(?:~|\.{1,2})?/[\w.~/*-]*\w[\w.~/*-]*|(?:[\w.-]+/)+")
_OPERATOR: Final = re.compile(r"[^\w\s\"'`.,;:?!()]+|\?\?|\?\.|!|::|:=|\.{3}")
_PAIRS: Final = words_of(":: ?: ??")
_MAYBE_PROSE: Final = words_of("& - -- – — / | + > • % :")
"""Lone signs that are operators beside code only."""
_EMPHASIS: Final = re.compile(r"(?<!\S)(\*{1,3}|_{1,2})([A-Za-z][\w' -]{0,200})\1(?=[\s.,;:?!]|$)")
_MARKS: Final = frozenset("?!")
_MIN_MARKED: Final = 3
"""Letters of a last piece of which several closing marks are none of its own."""
_QUOTES: Final = "\"'"
_ALONE: Final = re.compile(r"(?<!\S)([!-/:-@\[-`{-~]+)(?=\s|$)")
_ENDING_MARKS: Final = frozenset(".,:;?!")
_DASHES: Final = words_of("- -- --- & ... .. /")
_OPERAND: Final = re.compile(r"\w|\d+")
_LOWER_CAMEL: Final = re.compile(r"(?!i[A-Z]|e[A-Z][a-z]|mac[A-Z])[a-z]+[A-Z]\w*")
_CAMEL: Final = re.compile(r"[A-Za-z]+[a-z][A-Z]\w*")
_WORD: Final = re.compile(r"[^\W_]\w*")
_CASED_UNIT: Final = re.compile(r"[\d.]*(?:[KMGT]i?b(?:ps|/s|it)?|m(?:W|V|A|J|Hz|Pa)h?)")
"""A unit that is another one with another capital: bits and bytes, milliwatts and megawatts."""
_FACTORIAL: Final = re.compile(r"[A-Za-z]!")
_MARKED_NAME: Final = re.compile(r"[a-z_]\w*[?!]")
"""A name as Ruby and Swift write it, behind which a sentence goes on."""
_SQL_WORDS: Final = words_of("AND OR ALL ANY DISTINCT OUTER NOT ASC DESC LIMIT OFFSET")
"""Words in capitals that change a statement."""
_SPEAKING: Final = words_of(
    "do did can could should would am must may might will shall have had if when how what why where which that and or "
    "before after while until as because so than"
)
"""Words behind which `i` is the person."""
_AFTER_IN: Final = words_of("in using with of for")


class CodeTokens(msgspec.Struct, frozen=True, gc=False):
    """The code-like parts of one text, in their case."""

    strict: tuple[str, ...] = ()
    """Parts that both texts must have, in the order of the text."""
    quoted: tuple[str, ...] = ()
    """Plain words and whole expressions in backticks, which count where both texts have some."""
    forms: frozenset[str] = frozenset()
    """Words in their case."""
    signs: tuple[str, ...] = ()
    """Signs that stand alone between blanks, which count where both texts have some: `;`, `:)`."""
    dotted: frozenset[str] = frozenset()
    """Names with dots in their case; empty in a text of one case."""
    is_about_code: bool = False
    """True if a part or a word shows that the text is about code."""

    def differ_from(self, other: CodeTokens, *, in_any_order: bool) -> bool:
        """Return whether a sign or a letter's case makes the other text another question."""
        if self.strict != other.strict and (not in_any_order or Counter(self.strict) != Counter(other.strict)):
            return True
        if self.signs and other.signs and Counter(self.signs) != Counter(other.signs):
            return True
        if self.quoted and other.quoted and Counter(self.quoted) != Counter(other.quoted):
            return True
        if _have_other_case(self, other) or _have_other_case(other, self) or _have_other_dotted(self, other):
            return True
        return self.is_about_code and other.is_about_code and _have_other_type(self.forms, other.forms)


def code_tokens(text: str) -> CodeTokens:
    """Return the code-like parts of a text in normal form; never raises."""
    words = _WORD.findall(text)
    is_about_code = any(word in CODE_WORDS for word in map(str.lower, words)) or _IN_LANGUAGE.search(text) is not None
    if not is_about_code and _SIGNS.search(text) is None:
        return CodeTokens(forms=frozenset(words), signs=_signs(text), dotted=_dotted(text))
    quoted: list[str] = []
    strict: list[str] = []
    for span in _QUOTED.findall(text):
        is_plain = " " in span.strip() or _WORD.fullmatch(span) is not None
        (quoted if is_plain else strict).append(" ".join(span.split()))
    is_about_code = is_about_code or _QUOTED.search(text) is not None
    is_about_code = is_about_code or _EXPRESSION.search(text) is not None
    pieces = _EMPHASIS.sub(r"\2", _BRACKETS.sub(_joined, _QUOTED.sub(_unquoted, text))).split()
    found = [_part(piece, is_last=at == len(pieces) - 1) for at, piece in enumerate(pieces)]
    is_about_code = is_about_code or bool(strict) or any(part is not None for part in found)
    if is_about_code:
        found = [part or _beside_code(pieces, at) for at, part in enumerate(found)]
    strict += [part for part in found if part]
    return CodeTokens(tuple(strict), tuple(quoted), frozenset(words), _signs(text), _dotted(text), is_about_code)


def _signs(text: str) -> tuple[str, ...]:
    """Return the signs that stand alone, without quotation marks around them and without the marks of a sentence."""
    found = []
    for match in _ALONE.finditer(text):
        sign, following = match[1], text[match.end() : match.end() + 2].lstrip()
        bare = sign if following else sign.rstrip("?!.")
        if len(bare) > 2 and bare[0] == bare[-1] and bare[0] in "\"'`":
            found.append(bare[1:-1])
        elif (
            bare
            and bare not in _DASHES
            and (following[:1].islower() or not (bare in _MAYBE_PROSE or set(bare) <= _ENDING_MARKS))
        ):
            found.append(bare)
    return tuple(found)


def _unquoted(found: re.Match[str]) -> str:
    """Return a span with spaces as if it were not quoted; any other one is taken already."""
    return f" {found[1]} " if " " in found[1].strip() else " "


def _joined(found: re.Match[str]) -> str:
    return "".join(found.group().split())


def _dotted(text: str) -> frozenset[str]:
    if "." not in text or text.islower() or text.isupper():
        return frozenset()
    return frozenset(name for name in _DOTTED.findall(text) if name.rpartition(".")[2].lower() not in _DOMAINS)


def _part(piece: str, *, is_last: bool) -> str | None:
    """Return a piece between spaces without the marks of its sentence if it is code, else None."""
    core = _bare(piece, is_last=is_last)
    if piece in _PAIRS or _CASED_UNIT.fullmatch(core) or (not is_last and _FACTORIAL.fullmatch(piece)):
        return piece if piece in _PAIRS else core or piece
    if not core or core in _MAYBE_PROSE or _is_prose(core):
        return None
    if _FLAG.fullmatch(core) or _PATH.fullmatch(core) or _STRICT.search(core) or _CALL.fullmatch(core):
        return core
    return core if _OPERATOR.fullmatch(core) else None


def _bare(piece: str, *, is_last: bool) -> str:
    core = piece.rstrip(",;:.")
    if is_last and core[-2:-1] in _MARKS and len(core.rstrip("?!")) >= _MIN_MARKED:
        core = core.rstrip("?!")
    if piece.endswith("...") and not core:
        return ""
    while core and core[-1] in "?!" and (is_last or _is_prose(core[:-1]) or not core.strip("?!")):
        if not is_last and core in ("!", "??", "!!"):
            return core
        core = core[:-1]
        is_last = is_last and bool(core) and core[:-1].isalpha()
    if core.startswith("(") and core.count("(") > core.count(")"):
        core = core[1:]
    if core.endswith(")") and core.count(")") > core.count("("):
        core = core[:-1]
    if core[:1] == "(" and core[-1:] == ")" and "(" not in core[1:]:
        core = core[1:-1]
    return core if "$" in core else core.strip(_QUOTES)


def _is_prose(core: str) -> bool:
    return core.isalnum() or _PROSE.fullmatch(core) is not None


def _beside_code(pieces: Sequence[str], at: int) -> str | None:
    """Return a sign or a letter that counts in a text about code only."""
    piece = pieces[at]
    before, after = pieces[at - 1] if at else "", pieces[at + 1] if at + 1 < len(pieces) else ""
    if piece in _MAYBE_PROSE:
        operands = [word.strip("?,;:()\"'") for word in (before, after)]
        is_between = all(_OPERAND.fullmatch(word) for word in operands)
        return f"{operands[0]}{piece}{operands[1]}" if is_between else piece
    if piece in _SQL_WORDS or (at and after[:1].islower() and _MARKED_NAME.fullmatch(piece)):
        return piece
    core = piece.rstrip(",;:." if after else ",;:.?!")
    if _LITERAL.fullmatch(core) or _SUM.fullmatch(core):
        return core
    core = core.strip(_QUOTES)
    if core[:1] == "#" and core[1:].isidentifier():
        return core
    if len(core) == 1 and core.isalpha():
        is_word = core in "aI" or not at or before.lower() in _AFTER_IN
        is_word = is_word or (core == "i" and before.lower() in _SPEAKING)
        return None if is_word else core
    return core if after and len(core) == 2 and core[0].isalpha() and core[1] in "?!" else None


def _have_other_case(one: CodeTokens, other: CodeTokens) -> bool:
    """Return whether an identifier of the one stands in the other with other capitals."""
    cased = [form for form in one.forms - other.forms if _CAMEL.fullmatch(form) and form.lower() not in CODE_WORDS]
    if not cased:
        return False
    theirs = {form.lower() for form in other.forms - one.forms}
    is_about_code = one.is_about_code and other.is_about_code
    return any(form.lower() in theirs and (is_about_code or _LOWER_CAMEL.fullmatch(form) is not None) for form in cased)


def _have_other_dotted(one: CodeTokens, other: CodeTokens) -> bool:
    """Return whether a name with dots of the one stands in the other with other capitals."""
    ours, theirs = one.dotted - other.dotted, {name.lower() for name in other.dotted - one.dotted}
    return any(name.lower() in theirs for name in ours)


def _have_other_type(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Return whether one text has `String` where the other has `string`, and both write other words with capitals."""
    if not any(form[0].isupper() and (form.lower() in CODE_WORDS or form == "C") for form in ours & theirs):
        return False
    lowered = {form.lower() for form in ours - theirs} & {form.lower() for form in theirs - ours}
    return not lowered.isdisjoint(_TYPES)
