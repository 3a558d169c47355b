"""What a model reads of an MCP server's answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.harness.mcpresults import MOST_DATA, rendered
from isthmus.models.results import ToolFailure, result_content, tool_outcome

SOUND = "UklGRiQAAABXQVZF"


def text(said: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": said}


CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "text": ([text("a"), text("b")], {}, "a\nb"),
    "the same JSON twice": ([text('{\n "a": [1, 2.0]\n}')], {"structured": {"a": [1, 2]}}, '{\n "a": [1, 2.0]\n}'),
    "a wrapped number": ([text("3")], {"structured": {"result": 3}}, "3"),
    "a wrapped text": ([text("3")], {"structured": {"result": "3"}}, "3"),
    "a wrapped list, an item a block": (
        [text("Rome"), text("[1]")],
        {"structured": {"result": ["Rome", [1]]}},
        "Rome\n[1]",
    ),
    "a list": ([text("1"), text("2")], {"structured": [1, 2]}, "1\n2"),
    "more than the text says": ([text("two")], {"structured": {"n": 2}}, 'two\n{"n":2}'),
    "true is not 1": ([text("1")], {"structured": {"result": True}}, '1\n{"result":true}'),
    "nothing but structure": ([], {"structured": {"id": 2512292042121000001}}, '{"id":2512292042121000001}'),
    "an empty list": ([], {"structured": {"result": []}}, '{"result":[]}'),
    "null": ([text("gone")], {"structured": None}, "gone\nnull"),
    "nothing": ([], {}, ""),
    "a link": (
        [{"type": "resource_link", "uri": "file:///a", "name": "a", "description": "A file", "mimeType": "text/plain"}],
        {},
        "[resource file:///a: a; A file; text/plain]",
    ),
    "a text resource": (
        [{"type": "resource", "resource": {"uri": "file:///a", "text": "its text"}}],
        {},
        "[resource file:///a]\nits text",
    ),
    "a kind to come": ([{"type": "hologram", "n": 1}], {}, '{"type":"hologram","n":1}'),
}


@pytest.mark.parametrize("case", CASES)
def test_text(case: str):
    """An answer without images, sounds and files is one text, and says nothing twice."""
    content, more, expected = CASES[case]
    assert result_content(rendered(content, **more)) == expected


def test_images_sounds_and_files_are_parts():
    """Each block becomes a part of the neutral history, of the type that its bytes show, in its place."""
    parts = rendered(
        [
            text("see"),
            {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/jpeg"},
            {"type": "audio", "data": SOUND, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///x/a.pdf", "blob": "JVBERi0=", "mimeType": "text/plain"}},
        ]
    )
    assert result_content(parts) == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
    ]


@pytest.mark.parametrize("kind", ["text", "text/plain; charset=utf-8", 7])
def test_whatever_a_server_calls_them_no_bytes_are_lost(kind: Any):
    """A word for its bytes that is no media type says nothing, and spoils nothing."""
    parts = rendered([{"type": "resource", "resource": {"uri": "file:///x/a.bin", "blob": "AAAA", "mimeType": kind}}])
    (part,) = result_content(parts)
    assert part["file"]["file_data"] in ("data:;base64,AAAA", "data:text/plain;base64,AAAA")


def test_a_failure_is_one():
    """What the server calls an error is a failure with its text, whatever else was in it."""
    failed = rendered([text("no such city"), {"type": "image", "data": "iVBORw0KGgo="}], failed=True)
    assert isinstance(failed, ToolFailure)
    assert (failed.text, tool_outcome(failed).ok, failed.error.kind) == ("Error: no such city", False, "error")
    assert rendered([], failed=True) == "Error: the server gave no reason"


def test_a_text_is_cut_once():
    """The limit counts each character once, over all blocks, and what is cut is said where it was."""
    whole = json.dumps({"a": "x" * 40})
    assert rendered([text(whole)], structured=json.loads(whole), most_text=len(whole)) == whole
    cut = rendered([text("x" * 8), text("y" * 8), text("z")], most_text=10)
    note = "[cut: {} of {} characters are shown; ask for less at a time]"
    assert cut == f"xxxxxxxx\nyy\n{note.format(2, 8)}\n\n{note.format(0, 1)}"


def test_data_beyond_the_limit_is_left_out():
    """A file that no provider would take is named instead, and the rest stays."""
    big = {"type": "image", "data": "iVBORw0KGgo=" + "A" * MOST_DATA, "mimeType": "image/png"}
    left = rendered([big, text("beside")])
    assert left == f"[left out: image/png of about {(MOST_DATA + 12) * 3 // 4} bytes]\nbeside"


def test_bookkeeping_of_ours_is_no_server_s_business():
    """A reserved key in an answer does not reach the history."""
    content = [{"type": "resource", "resource": {"uri": "a", "text": "t", "_isthmus": {"visibility": "internal"}}}]
    assert "_isthmus" not in json.dumps(result_content(rendered(content)))
