"""JSON text: what goes in exactly comes out exactly, also what the fast encoder refuses."""

import json
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.models.jsontext import (
    Raw,
    WrittenFloat,
    as_it_came,
    dumps,
    fields,
    items,
    loads,
    members,
    reader,
    strictly,
)

HUGE = 10**30
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_VALUES)
def test_what_the_fast_encoder_refuses_changes_nothing_else(value: Any) -> None:
    """F30: a huge integer or a lone surrogate beside a value changes how neither that nor the other is written."""
    for odd in (HUGE, "\ud800"):
        assert dumps([odd, value]) == b"[" + json.dumps(odd).encode() + b"," + dumps(value) + b"]"
        assert loads(dumps({"odd": odd, "value": value})) == {"odd": odd, "value": value}


@pytest.mark.parametrize("odd", [HUGE, "\ud800", {"\ud800": HUGE}])
def test_texts_stay_as_they_were_beside_an_odd_value(odd: Any) -> None:
    """Raw JSON stands verbatim, a written number has all its digits, and what is no number is null, everywhere."""

    class Item(msgspec.Struct):
        raw: Raw
        odd: Any

    raw = Raw(b'{"a": 1.10,  "b":1e2}')
    written = WrittenFloat("0.1000000000000000055511151231257827")
    text = dumps({"raw": raw, "written": written, "none": [float("nan"), float("inf")], "odd": odd})
    head = b'{"raw":{"a": 1.10,  "b":1e2},"written":0.1000000000000000055511151231257827,"none":[null,null],"odd":'
    assert text.startswith(head)
    assert loads(text)["odd"] == odd
    assert dumps(Item(raw, odd)).startswith(b'{"raw":{"a": 1.10,  "b":1e2},"odd":')


@pytest.mark.parametrize("wrong", [object(), [HUGE, object()], {"a": (HUGE, object)}])
def test_what_has_no_json_form_is_refused(wrong: Any) -> None:
    """A value that JSON has no words for is a TypeError, also beside an odd one."""
    with pytest.raises(TypeError):
        dumps(wrong)


def test_what_a_model_writes_is_read_strictly_and_written_as_it_came() -> None:
    """Half a surrogate pair is read, a NaN refused; a decoded NaN is written as a NaN, all else as ever."""
    assert strictly('{"a":"\\ud800"}') == {"a": "\ud800"}
    with pytest.raises(ValueError, match="NaN"):
        strictly('{"a":NaN}')
    assert as_it_came(loads('{"a":[NaN]}')) == '{"a": [NaN]}'
    assert as_it_came({"a": HUGE}) == f'{{"a":{HUGE}}}'


def test_what_a_server_sent_is_split_whatever_stands_in_it() -> None:
    """F30: half a surrogate pair or a NaN spoils neither an object nor an array; strictly read they are no JSON."""
    odd = b'{"a":"\\ud83d","b":NaN,"c":[1.5]}'
    with pytest.raises(ValueError, match="JSON object"):
        fields(odd)
    assert {name: loads(raw) for name, raw in members(odd).items() if name != "b"} == {"a": "\ud83d", "c": [1.5]}
    assert [loads(raw) for raw in items(b'["\\ud83d",{"a":1}]')] == ["\ud83d", {"a": 1}]
    assert members(b'{"a": 1.10}') == {"a": Raw(b"1.10")}
    assert items(b'[ {"a": 1.10}]') == [Raw(b'{"a": 1.10}')]
    for wrong in (b"[1]", b"x", b"7"):
        with pytest.raises(ValueError, match=r"JSON object|Expecting"):
            members(wrong)
    for wrong in (b'{"a":1}', b"x", b"7"):
        with pytest.raises(ValueError, match=r"JSON array|Expecting"):
            items(wrong)


def test_a_few_fields_are_read_as_all_are() -> None:
    """Halves of characters and numbers that only the standard library takes are read; what is no object is refused."""

    class Told(msgspec.Struct):
        id: Any = None
        n: Any = 0

    read = reader(Told)
    assert read(b'{"id":"a","other":1}') == Told("a")
    assert read(b'{"id":"\\ud800","n":1e400}') == Told("\ud800", inf)
    for data, told in ((b"[1]", "a JSON object was wanted"), (b"{", "Expecting"), (b'{"id":', "Expecting")):
        with pytest.raises(ValueError, match=told):
            read(data)
