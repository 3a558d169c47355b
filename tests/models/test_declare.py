"""Tools as a request declares them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from isthmus.models.contract import ToolSpec
from isthmus.models.declare import SentNames, declared
from isthmus.models.events import Note


class Arguments:
    """Stands for a model of arguments."""

    def __init__(self, **properties: Any) -> None:
        self.schema = {"type": "object", "properties": properties}

    def model_json_schema(self) -> dict[str, Any]:
        """The schema."""
        return self.schema


def _tool(name: str, strict: bool | None, **properties: Any) -> ToolSpec:
    return ToolSpec(name=name, args_model=Arguments(**properties), strict=strict)  # type: ignore[arg-type]


def _declared(*tools: ToolSpec, dialect: str = "openai-strict") -> tuple[list[Any], list[str]]:
    notes: list[Note] = []
    return declared(tools, dialect=dialect, notes=notes), [note.detail for note in notes]


def test_strict_is_left_to_the_adapter_where_nothing_is_said() -> None:
    """Seed 004: without a word on strictness the schema is sent as it is, and no word either."""
    (tool,), notes = _declared(_tool("t", None, a={"type": "integer", "default": 1}))
    assert (tool.parameters, tool.strict) == (Arguments(a={"type": "integer", "default": 1}).schema, None)
    assert notes == []


def test_strict_false_keeps_optional_fields_and_open_objects() -> None:
    """Seed 004: strict=False sends the inferred schema with its optional fields and open objects."""
    (tool,), notes = _declared(_tool("t", False, a={"type": "object", "additionalProperties": True}))
    assert tool.parameters["properties"]["a"]["additionalProperties"] is True
    assert "required" not in tool.parameters
    assert tool.strict is False
    assert notes == []


def test_strict_true_sends_the_schema_of_the_dialect_with_a_note() -> None:
    """F08: a strict tool gets the dialect's schema, and a note says what was changed."""
    (tool,), notes = _declared(_tool("t", True, a={"type": "string", "minLength": 2}))
    assert tool.strict is True
    assert tool.parameters == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert "/properties/a/minLength: left out (wider)" in notes[0]


def test_one_tool_that_cannot_be_strict_takes_no_other_with_it() -> None:
    """F08: what the dialect cannot say downgrades that one tool, with a note; the others stay strict."""
    tools, notes = _declared(
        _tool("good", True, a={"type": "string"}), _tool("open", True, a={"type": "object"}), _tool("free", True, a={})
    )
    assert [tool.strict for tool in tools] == [True, False, False]
    assert tools[1].parameters == Arguments(a={"type": "object"}).schema
    assert "tools: 'open' is not strict: /properties/a: an object with keys of any name" in notes[1]


def test_an_explicit_schema_is_never_rewritten() -> None:
    """Seed 004: an explicit schema is sent unchanged; it is strict only where the dialect takes it so."""
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    tight = {**loose, "required": ["a"], "additionalProperties": False, "$comment": "mine"}
    before = copy.deepcopy([loose, tight])
    tools, notes = _declared(
        ToolSpec(name="loose", parameters_schema=loose, strict=True),
        ToolSpec(name="tight", parameters_schema=tight, strict=True),
    )
    assert [tool.parameters for tool in tools] == before
    assert [tool.strict for tool in tools] == [False, True]
    assert len(notes) == 1
    assert "tools: 'loose' is not strict: its own schema is sent unchanged" in notes[0]


def test_a_request_holds_only_so_many_optional_parameters() -> None:
    """F08: 25 strict tools with an optional parameter each: those beyond the limits of a request are not strict."""
    tools, notes = _declared(*(_tool(f"t{n}", True, a={"type": "string"}) for n in range(25)), dialect="anthropic")
    assert [tool.strict for tool in tools] == [True] * 20 + [False] * 5
    wide = {f"p{n}": {"type": "string"} for n in range(15)}
    tools, notes = _declared(_tool("a", True, **wide), _tool("b", True, **wide), dialect="anthropic")
    assert [tool.strict for tool in tools] == [True, False]
    assert "30 of optional in all strict tools, anthropic takes 24" in notes[-1]


def test_a_name_is_made_legal_with_a_note() -> None:
    """F26: a name that the dialect does not take is sent under another, and noted."""
    (tool,), notes = _declared(_tool("my tool", None))
    assert tool.name.startswith("my_tool_")
    assert notes == [f"tools: 'my tool' is sent as {tool.name!r}"]


def test_names_that_were_changed_are_told_back() -> None:
    """F26: what a tool was sent as leads to its own name; a legal name needs no telling, and none is forgotten."""
    names = SentNames("openai-strict")
    for tools in ([_tool("my tool", None), _tool("plain", None)], [_tool("your tool", None)]):
        names.learn(tools)
    sent = [tool.name for tool in _declared(_tool("my tool", None), _tool("your tool", None))[0]]
    assert names == dict(zip(sent, ["my tool", "your tool"], strict=True))


@pytest.mark.parametrize("dialect", ["openai-strict", "anthropic", "bedrock", "gemini", "none"])
@pytest.mark.parametrize(
    "wrong", [{"required": 5}, {"properties": {"a": {"enum": 5}}}, {"properties": {"a": {"type": 5}}}]
)
def test_a_malformed_schema_fails_no_request(wrong: dict[str, Any], dialect: str) -> None:
    """F08: a keyword that is not what JSON Schema has it makes that tool not strict where strictness has rules."""
    spec = ToolSpec(name="t", parameters_schema={"type": "object", **wrong}, strict=True)
    (made,) = declared([spec], dialect=dialect, notes=[])
    assert (made.parameters, made.strict) == (spec.parameters_schema, dialect == "none")
