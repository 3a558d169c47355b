"""JSON as models write it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.models.lenient import parse_json_dict
from isthmus.models.output import OutputSchema

LEAVES = st.none() | st.booleans() | st.integers() | st.text(alphabet="ab \"\\'{}[],:\n é😀", max_size=8)
OBJECTS = st.dictionaries(
    st.text(min_size=1, max_size=4),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param('{"a": 1}', {"a": 1}, id="as it should be"),
        pytest.param('```json\n{"a": 1}\n```', {"a": 1}, id="fenced"),
        pytest.param('Here it is:\n```\n{"a": 1}\n```\nMore {is} not needed.', {"a": 1}, id="fenced, in prose"),
        pytest.param('Sure! {"a": 1} Anything else?', {"a": 1}, id="in prose"),
        pytest.param("{a: 1, b_c: true}", {"a": 1, "b_c": True}, id="keys without quotes"),
        pytest.param('{"a": "he said "hi" to me", "b": 2}', {"a": 'he said "hi" to me', "b": 2}, id="inner quotes"),
        pytest.param('{"a": ["x "y" z", "w"]}', {"a": ['x "y" z', "w"]}, id="inner quotes in a list"),
        pytest.param('{"a": "one\ntwo\r\nthree"}', {"a": "one\ntwo\r\nthree"}, id="raw line ends"),
        pytest.param('{\\n  "a": 1,\\n  "b": 2\\n}', {"a": 1, "b": 2}, id="line ends escaped too often"),
        pytest.param('{\\n \\"a\\": \\"b\\"}', {"a": "b"}, id="all escaped once too often"),
        pytest.param('{"a": 1,}', {"a": 1}, id="trailing comma"),
        pytest.param('{"a": [1, 2,],}', {"a": [1, 2]}, id="trailing commas"),
        pytest.param('{"a": 1};', {"a": 1}, id="trailing semicolon"),
        pytest.param('"{\\"a\\": 1}"', {"a": 1}, id="an object in a string"),
        pytest.param('{"a": "[1, 2]", "b": "{\\"c\\": 3}"}', {"a": [1, 2], "b": {"c": 3}}, id="members in strings"),
        pytest.param('{"a": "[10-20]"}', {"a": "[10-20]"}, id="a range is text"),
        pytest.param('{"a": "[word]"}', {"a": "[word]"}, id="a word in brackets is text"),
        pytest.param('{"a": True, "b": None}', {"a": True, "b": None}, id="Python's literals"),
        pytest.param('x {"n": 12345678901234567890123}', {"n": 12345678901234567890123}, id="large numbers are exact"),
        pytest.param(
            'x {"n": 9007199254740993.0}', {"n": 9007199254740993}, id="whole numbers beyond floats are exact"
        ),
        pytest.param(
            '<think>Perhaps {"a": 5}?</think>\n{"a": 6}', {"a": 6}, id="a draft in the reasoning is no answer"
        ),
        pytest.param("No JSON here at all.", None, id="prose"),
        pytest.param("", None, id="nothing"),
        pytest.param("[1, 2]", None, id="a list"),
        pytest.param('[{"a": 1}]', None, id="a list of objects is none of them"),
        pytest.param('{"a": maybe}', None, id="a word that is no value"),
        pytest.param('{"a": "x" "b": 2}', None, id="a comma too few"),
    ],
)
def test_what_is_tolerated_and_what_is_not(text: str, found: Any) -> None:
    """Each looseness of the table gives the object that was meant; prose and lists give None."""
    assert parse_json_dict(text) == found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", id="deep lists"),
        pytest.param('{"a":' * 100_000 + "1" + "}" * 100_000, id="deep objects"),
        pytest.param('{"a":' * 100_000, id="deep objects that stop"),
        pytest.param('Sure: {"a": 1' + "0" * 5000 + "}", id="more digits than Python reads"),
        pytest.param("{a: 1" + "0" * 5000 + "}", id="the same, loosely"),
    ],
)
def test_what_nobody_can_hold_is_none(text: str) -> None:
    """A reply that is nested, or that counts, beyond what can be read is no answer and no crash."""
    assert parse_json_dict(text) is None
    assert OutputSchema(dict, False).validate_json(text) is None


def test_an_object_that_just_stops_is_none() -> None:
    """F15: no prefix of an object is taken for one, not even for one that stands complete inside it."""
    text = 'Sure: {"a": {"b": 1}, "c": [1, {"d": "x"}], "e": null, f: -1.5, "g": true, "h": "i \\"j\\" \\u00e9"}'
    assert [text[:end] for end in range(len(text)) if parse_json_dict(text[:end]) is not None] == []
    assert parse_json_dict(text) is not None


@settings(max_examples=200, deadline=None)
@given(OBJECTS, st.sampled_from(["{}", "```json\n{}\n```", "Here: {} ."]))
def test_a_right_object_is_never_misread(value: dict[str, Any], around: str) -> None:
    """Strict JSON comes back as it is, fenced and in prose too; only members that are JSON in strings are read."""
    text = around.replace("{}", json.dumps(value))
    found = parse_json_dict(text)
    assert found is not None
    for key, item in value.items():
        assert found[key] == item or (isinstance(item, str) and found[key] == json.loads(item))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]":,;\\n`ab1-. '))
def test_nothing_is_raised_whatever_comes(text: str) -> None:
    """Any text gives an object or None."""
    assert isinstance(parse_json_dict(text), dict | None)


@pytest.mark.parametrize("text", ["{" * 50_000, "{a:" * 50_000, '{"a":"' + '" ' * 50_000, "```\n" * 20_000])
def test_a_hostile_text_takes_no_time(text: str) -> None:
    """Deep nesting, endless quotes and fences are given up, without a crash."""
    assert parse_json_dict(text) is None
