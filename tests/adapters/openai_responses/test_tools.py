"""Native and local tools in one request, and which choice holds."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.openai_responses.tools import put_tools
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Note, NoteCode

LOOK = ToolSpec(
    name="look",
    parameters_schema={
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
        "additionalProperties": False,
    },
)
SEARCH = {"type": "web_search"}
FUNCTION = {"type": "function", "name": "find", "parameters": {}}


def put(**settings: Any) -> tuple[dict[str, Any], list[Note]]:
    """What is written into a body."""
    body: dict[str, Any] = {}
    notes: list[Note] = []
    put_tools(GenerateContext(**settings), body, notes=notes)
    return body, notes


def test_native_declarations_come_first() -> None:
    """Hosted tools of the options stand before the local ones, which are strict."""
    body, notes = put(tools=(LOOK,), options={"tools": [SEARCH]})
    assert body["tools"] == [
        SEARCH,
        {"type": "function", "name": "look", "parameters": LOOK.parameters, "strict": True},
    ]
    assert notes == []


@pytest.mark.parametrize(
    "settings",
    [
        {"tools": (LOOK,), "options": {"tools": [{"type": "mcp", "name": "look"}]}},
        {"options": {"tools": [FUNCTION, FUNCTION]}},
    ],
)
def test_duplicate_names_are_refused(settings: dict[str, Any]) -> None:
    """A native and a local tool of one name are a ValueError, and so are two native ones."""
    with pytest.raises(ValueError, match="Duplicate native tool name"):
        put(**settings)


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_native_functions_cannot_stand_beside_a_policy(kind: str) -> None:
    """Where tools or a choice are given, a raw function has nobody to run it."""
    native = {"tools": [{"type": kind, "name": "find"}]}
    for settings in ({"tools": (LOOK,)}, {"tool_choice": "none"}, {"tool_choice": "auto"}):
        with pytest.raises(ValueError, match="nobody to run it"):
            put(**settings, options=native)


def test_native_functions_alone_are_declared() -> None:
    """Without tools of the context they go out, for the application to answer their calls."""
    assert put(options={"tools": [FUNCTION]})[0] == {"tools": [FUNCTION]}


@pytest.mark.parametrize(
    ("local", "native", "sent"),
    [
        ("auto", {"type": "web_search"}, {"type": "web_search"}),
        (None, "required", "required"),
        ("auto", None, "auto"),
        (None, None, None),
        ("required", {"type": "web_search"}, "required"),
        ("none", "required", "none"),
        ("look", "auto", {"type": "function", "name": "look"}),
    ],
)
def test_which_choice_holds(local: str | None, native: Any, sent: Any) -> None:
    """A native choice is kept where the local one is auto; local required, none and names win."""
    options = {"tools": [SEARCH], **({} if native is None else {"tool_choice": native})}
    body, notes = put(tools=(LOOK,), tool_choice=local, options=options)
    assert body.get("tool_choice") == sent
    overruled = native is not None and local not in (None, "auto")
    assert [note.code for note in notes] == ([NoteCode.PARAMETER_CHANGED] if overruled else [])


def test_an_empty_policy_of_none_stays_none() -> None:
    """When no tool is left, the choice none is sent, so that hosted defaults restore no function."""
    body, _ = put(tool_choice="none", options={"tools": [SEARCH]})
    assert body == {"tools": [SEARCH], "tool_choice": "none"}
    assert put(tool_choice="none")[0] == {"tool_choice": "none"}


def test_required_without_any_tool_is_left_out() -> None:
    """Nothing can be required of a request without tools: noted."""
    body, notes = put(tool_choice="required")
    assert body == {}
    assert [note.code for note in notes] == [NoteCode.PARAMETER_DROPPED]


def test_a_choice_that_names_no_tool_is_refused() -> None:
    """The message lists those that there are."""
    with pytest.raises(InvalidRequestError, match="look"):
        put(tools=(LOOK,), tool_choice="find")


def test_parallel_calls_are_said_where_there_are_tools() -> None:
    """The policy's own word is sent, either way, and nothing where there is nothing to call."""
    assert put(tools=(LOOK,))[0]["parallel_tool_calls"] is True
    assert put(tools=(LOOK,), parallel_tool_calls=False)[0]["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in put(options={"tools": [SEARCH]})[0]


def test_strictness_is_kept() -> None:
    """Strict by default, off where the tool says so; an explicit schema that cannot be strict goes out unchanged."""
    loose = ToolSpec(name="loose", parameters_schema={"type": "object"}, strict=False)
    open_ = ToolSpec(name="open", parameters_schema={"type": "object", "properties": {"x": {}}})
    body, notes = put(tools=(LOOK, loose, open_))
    assert [tool["strict"] for tool in body["tools"]] == [True, False, False]
    assert body["tools"][2]["parameters"] == {"type": "object", "properties": {"x": {}}}
    assert [note.code for note in notes] == [NoteCode.PARAMETER_CHANGED]


@pytest.mark.parametrize("name", ["server.tool", "x" * 70, "ä b"])
def test_names_are_made_legal_and_told_apart(name: str) -> None:
    """A name that the API refuses is sent under a legal one, in the choice too (F26)."""
    body, _ = put(tools=(ToolSpec(name=name, strict=False),), tool_choice=name)
    sent = body["tools"][0]["name"]
    assert sent != name
    assert len(sent) <= 64
    assert body["tool_choice"]["name"] == sent


@pytest.mark.parametrize("given", ["web_search", {"type": "web_search"}, ["web_search"]])
def test_native_tools_must_be_a_list_of_dicts(given: Any) -> None:
    """The place is named."""
    with pytest.raises(InvalidRequestError, match=r"options\.tools"):
        put(options={"tools": given})
