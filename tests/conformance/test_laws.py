"""The table of laws: each law is whole, comes after those it builds on, and is shown to be able to fail."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from conformance import test_conform_broken_calls as calls
from conformance import test_conform_broken_habits as habits
from conformance import test_conform_broken_streams as streams
from conformance import test_laws_wire as wire
from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.conformance import LAWS, conform
from isthmus.conformance.laws import laws_as_json
from support.twins import TOOLS, Chat

IDS = [law.id for law in LAWS]
TABLES: tuple[dict[str, Any], ...] = (
    *(streams.BROKEN, calls.CALLS, calls.TURNS, habits.HABITS, wire.BROKEN, wire.LINES),
)
# Laws that another test of these files breaks, or that only warn.
ELSEWHERE = {
    "cut-call": calls.test_a_cut_call_is_caught,
    "streams-live": streams.test_a_stream_that_comes_late_is_warned_of,
    "wire-reads": wire.test_a_recording_that_cannot_be_read_is_caught,
    "wire-events": wire.test_a_rare_reply_is_held_to_the_laws_of_a_stream_too,
    "wire-golden": wire.test_a_request_beside_its_context_is_compared,
    "wire-releases": wire.test_a_connection_that_stays_open_is_caught,
}


def test_each_law_is_shown_to_be_able_to_fail() -> None:
    """For every law there is an adapter that breaks it."""
    broken = {law for table in TABLES for _, law in table.values()} | set(ELSEWHERE) | set(WARNED)
    assert set(IDS) == broken
    assert sum(map(len, TABLES)) >= 60


def test_laws_come_after_those_they_build_on() -> None:
    """Ids are unique, and each law stands after the laws without which it cannot be judged."""
    assert len(set(IDS)) == len(IDS)
    for place, law in enumerate(LAWS):
        assert set(law.after) <= set(IDS[:place]), law.id


def test_each_law_says_what_it_is() -> None:
    """A law has a claim in one sentence, a reason and a remedy."""
    for law in LAWS:
        assert law.claim[0].isupper() or law.claim.startswith("make_tool_turn") or law.claim[:4] == "capa", law.id
        assert law.claim.endswith("."), law.id
        assert law.why.endswith("."), law.id
        assert law.fix, law.id
        assert all(len(name) == 3 and name[0] == "F" for name in law.covers)


def test_the_laws_are_json() -> None:
    """The laws as JSON have the fields of a law, without its judge."""
    assert [law["id"] for law in json.loads(laws_as_json())] == IDS


class TakesAnything(ModelAdapter):
    """Shows no setting by name."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    async def chat(self, messages: Any, tools: Any) -> Any:
        return ChatResponse("Hi.", [], "end_turn")


class NoCeiling(TakesAnything):
    """Names its model and no ceiling."""

    def __init__(self, *, model: str = "m") -> None:
        super().__init__(model=model)


class CountsTwice(Chat):
    """Reports other tokens when streamed."""

    chat = Chat.chat

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        async for kind, value in Chat.stream_with_tools(self, messages, tools):
            if kind == "done":
                yield kind, replace(value, _raw={"usage": {"input_tokens": 99, "output_tokens": 1}})
            else:
                yield kind, value


WARNED = {"constructor": TakesAnything, "same-usage": CountsTwice}


@pytest.mark.parametrize(("law", "kind"), [*WARNED.items(), ("constructor", NoCeiling)])
def test_what_works_and_should_be_known_is_a_warning(law: str, kind: type) -> None:
    """F11, F21: settings that cannot be seen, and tokens that differ between faces, are warnings."""
    report = asyncio.run(conform(kind, tools=TOOLS))
    assert report.ok, report.table()
    assert law in {finding.law for finding in report.findings}


class Endless(Chat):
    """Never comes to its end."""

    async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
        while True:
            yield "text", "x"


def test_an_endless_stream_ends_the_run_in_time() -> None:
    """F24: a stream that yields for ever is read to a limit, and has no terminal."""
    report = asyncio.run(conform(Endless, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {"finish-present"}
    assert report.seconds < 5


class Interrupts(Chat):
    """Raises what would end the process."""

    async def chat(self, messages: Any, tools: Any) -> Any:
        raise KeyboardInterrupt


def test_an_adapter_cannot_end_the_run() -> None:
    """KeyboardInterrupt and SystemExit from an adapter are failures of its call."""
    report = asyncio.run(conform(Interrupts, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {"answers"}


class Canned(Chat):
    """Calls a tool of its own, when any is offered."""

    def call_name(self, call: Any) -> Any:
        return "get_weather"


def test_a_canned_name_is_an_error_only_where_the_tools_were_told() -> None:
    """Of tools that the kit made up an adapter need know nothing."""
    assert asyncio.run(conform(Canned)).ok
    assert {finding.law for finding in asyncio.run(conform(Canned, tools=TOOLS)).errors} == {"call-offered"}
