"""Layout of a text: the tree of segments that a selection retains or drops."""

from __future__ import annotations

from typing import Final

from gateway.trimming.structure.blocks import Block, blocks_of, fenced_blocks, is_diff, is_json, is_json_lines
from gateway.trimming.structure.code import DIVIDED_BYTES, code_group
from gateway.trimming.structure.entries import sections_group, yaml_group
from gateway.trimming.structure.fences import fences_of, info_of, lead_of
from gateway.trimming.structure.json_value import json_group
from gateway.trimming.structure.last_resort import cut_large_parts
from gateway.trimming.structure.markup import markup_nodes
from gateway.trimming.structure.rows import diff_group, json_lines_group, table_group
from gateway.trimming.structure.segment import LineGroup, SegmentGroup, SegmentNode, TextSegment
from gateway.trimming.structure.sentences import prose_nodes
from gateway.trimming.structure.syntax import is_program, syntax_of

MAX_SEGMENTS: Final = 20_000
"""Segments of one text; beyond, short blocks are not divided, and neighbouring sentences are one segment."""
MAX_FENCE_DEPTH: Final = 3
"""Depth to which fences within fences and within elements are divided; deeper ones go whole."""
_MARKUP: Final = frozenset({"html", "xml", "svg", "vue", "htm", "xhtml"})
_PLAIN: Final = frozenset({"text", "txt", "plain", "plaintext", "log", "console", "output", "markdown", "md"})


def layout_of(text: str, room_bytes: int | None = None) -> SegmentGroup:
    """Return a text as a tree of segments; with all of them retained it renders as the text.

    Only a long string in JSON may come back in another spelling of the same value.

    Args:
        text: The text.
        room_bytes: Bytes that may stay of it; parts that are too large beside others are then divided by force, and a
            JSON value among them becomes a string. None where no part is.
    """
    nodes: list[SegmentNode] = []
    for block in blocks_of(text):
        is_whole = len(nodes) > MAX_SEGMENTS and len(block.text) < DIVIDED_BYTES
        nodes += [TextSegment(block.text)] if is_whole else _nodes_of(block)
    layout = SegmentGroup(_merged(nodes))
    if room_bytes is not None:
        cut_large_parts(layout, room_bytes)
    return layout


def _nodes_of(block: Block, depth: int = 0) -> list[SegmentNode]:
    if block.kind == "prose":
        pieces = fenced_blocks(block.text) if "```" in block.text or "~~~" in block.text else [block]
        nodes = [prose_nodes(text) if kind == "prose" else [_fence_node(text, depth)] for kind, text in pieces]
        return nodes[0] if len(nodes) == 1 else [node for part in nodes for node in part]
    if block.kind == "markup":
        return [_markup_node(block.text, depth) or TextSegment(block.text)]
    if block.kind == "json":
        return [json_group(block.text) or TextSegment(block.text)]
    if block.kind == "table":
        return [table_group(block.text)]
    if block.kind == "json_lines":
        return [json_lines_group(block.text)]
    if block.kind == "diff":
        return [diff_group(block.text)]
    if block.kind == "code":
        return [code_group(block.text)]
    if block.kind == "yaml":
        return [yaml_group(block.text)]
    if block.kind == "sections":
        return [sections_group(block.text)]
    return [_fence_node(block.text, depth)]


def _markup_node(text: str, depth: int) -> SegmentNode | None:
    """Return elements as a tree, with the text in them divided like any; None where their tags do not match."""

    def divide(inner: str) -> list[SegmentNode]:
        return [node for block in blocks_of(inner) for node in _nodes_of(block, depth + 1)]

    return markup_nodes(text, [(fence.start, fence.end) for fence in fences_of(text)], divide)


def _fence_node(text: str, depth: int) -> SegmentNode:
    """Return a fenced block whose body is divided by its own structure; one without a body goes whole."""
    fence = next(iter(fences_of(text)), None)
    if depth > MAX_FENCE_DEPTH or fence is None or (fence.start, fence.end) != (0, len(text)):
        return TextSegment(text)
    if fence.body_start >= fence.body_end:
        return TextSegment(text)
    opening, body, closing = text[: fence.body_start], text[fence.body_start : fence.body_end], text[fence.body_end :]
    lead = lead_of(opening)
    if fence.is_quoted:
        return SegmentGroup([_lines_group(body, f"{lead}[…]\n")], opening, closing)
    node = _body_node(body, info_of(opening).split(" ")[0].lower(), depth + 1)
    if node is None:
        return TextSegment(text)
    if lead and type(node) is SegmentGroup:  # in prose a gap is marked within a line
        node = _lines_group(body, f"{lead}[…]\n")
    _indent_marks(node, lead)
    return SegmentGroup([node], opening, closing)


def _indent_marks(node: SegmentNode, lead: str) -> None:
    """Let each mark of a gap begin as the lines of its fence do."""
    if isinstance(node, LineGroup) and node.mark_line and not node.mark_line.startswith(lead):
        node.mark_line = lead + node.mark_line.lstrip(" ")
    for child in node.children if lead and isinstance(node, SegmentGroup) else ():
        _indent_marks(child, lead)


def _body_node(body: str, language: str, depth: int) -> SegmentNode | None:
    stripped = body.strip()
    if stripped[:1] in ("{", "[") and is_json(stripped):
        begin = body.index(stripped[0])
        group = json_group(stripped)
        if group is not None:
            group.opening = body[:begin] + group.opening
            group.closing += body[begin + len(stripped) :]
        return group
    if is_json_lines(body):
        return json_lines_group(body)
    if language == "diff" or is_diff(body):
        return diff_group(body) if is_diff(body) else None
    if language in ("yaml", "yml"):
        return yaml_group(body)
    if language in ("toml", "ini", "cfg", "conf", "properties"):
        return sections_group(body)
    if language in ("csv", "tsv"):
        return table_group(body)
    is_nested = "```" in body or "~~~" in body
    if language in _PLAIN and not is_nested:
        return _lines_group(body, "[…]\n")
    if language == "json":
        return _lines_group(body, "[…]\n")
    if is_program(body, language):
        return code_group(body, language)
    if language in _MARKUP:
        return _markup_node(body, depth) or _lines_group(body, "<!-- […] -->\n")
    blocks = blocks_of(body)
    if len(blocks) == 1 and blocks[0].kind in ("table", "code", "markup"):
        return _nodes_of(blocks[0], depth)[0]
    if (language and language not in _PLAIN) or any(block.kind == "code" for block in blocks):
        return _lines_group(body, syntax_of(body, language).mark_line())
    return SegmentGroup([node for block in blocks for node in _nodes_of(block, depth)])


def _lines_group(body: str, mark_line: str) -> SegmentNode:
    return LineGroup([TextSegment(line) for line in body.splitlines(keepends=True)], mark_line=mark_line)


def _merged(nodes: list[SegmentNode]) -> list[SegmentNode]:
    """Return at most MAX_SEGMENTS nodes, with neighbouring sentences joined where there are more."""
    if len(nodes) <= MAX_SEGMENTS:
        return nodes
    least = sum(len(node.text) for node in nodes if isinstance(node, TextSegment)) // (MAX_SEGMENTS // 2) + 1
    merged: list[SegmentNode] = []
    pending: list[str] = []
    num_chars = 0
    for node in nodes:
        if isinstance(node, TextSegment) and num_chars + len(node.text) <= least:
            pending.append(node.text)
            num_chars += len(node.text)
            continue
        if pending:
            merged.append(TextSegment("".join(pending)))
        pending, num_chars = ([node.text], len(node.text)) if isinstance(node, TextSegment) else ([], 0)
        if isinstance(node, SegmentGroup):
            merged.append(node)
    if pending:
        merged.append(TextSegment("".join(pending)))
    return merged
