"""What an adapter sets on its span."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any

import pytest
from opentelemetry import trace

from isthmus import observability
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text
from support.telemetry import Traced, traced

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))


async def inside(work: Any, **config: Any) -> tuple[Traced, dict[str, Any]]:
    """Do something inside a model call; what its span says in the end."""

    class Mine(ScriptedAdapter):
        async def stream(self, ctx: Any) -> Any:
            result = work()
            if asyncio.iscoroutine(result):
                await result
            yield Text("x")
            yield Finish("stop")

    with traced(**config) as seen:
        await Mine().generate(ASK)
        return seen, seen.one("chat")


async def test_values_become_what_a_span_can_hold() -> None:
    """Primitives and lists of one kind stay; all else is its text, 4000 characters of it, or nothing."""

    class Mute:
        def __str__(self) -> str:
            raise ValueError

    def work() -> None:
        observability.set_attributes(a=1, b=[1, 2], c=["x", 1], d={"k": 1}, e="y" * 5000, f=None)
        observability.set_attributes(mute=Mute())

    _, said = await inside(work)
    assert (said["a"], said["b"], said["c"], said["d"]) == (1, (1, 2), ("x", "1"), "{'k': 1}")
    assert len(said["e"]) == 4000
    assert "f" not in said
    assert "mute" not in said


async def test_keys_and_contents_do_not_leave() -> None:
    """F29: what is named or shaped like a key is hidden, and content attributes are left out unless captured."""

    def work() -> None:
        observability.set_attributes(
            api_key="plain", note="Bearer abcdefghijkl", **{"gen_ai.prompt": "p", "gen_ai.input.messages": "m"}
        )
        observability.add_prompt("secret words", system="rules")

    _, said = await inside(work)
    assert (said["api_key"], said["note"]) == ("***", "***")
    assert not {"gen_ai.prompt", "gen_ai.input.messages", "gen_ai.system_instructions"} & said.keys()
    _, said = await inside(work, capture_content=True)
    assert "secret words" in said["gen_ai.input.messages"]
    assert "rules" in said["gen_ai.system_instructions"]


async def test_an_exception_is_its_class_unless_contents_are_captured() -> None:
    """`record_exception` marks the span; the words are there only where contents may leave."""

    def work() -> None:
        observability.record_exception(observability.current_span(), ValueError("said the prompt"))

    seen, said = await inside(work)
    assert said["error.type"] == "ValueError"
    assert "said the prompt" not in seen.text()
    seen, _ = await inside(work, capture_content=True)
    assert "said the prompt" in seen.text()


async def test_a_captured_context_is_current_in_a_thread() -> None:
    """`capture_context` and `reattach` carry the span into a thread of one's own, for a block."""
    names: list[str] = []

    def elsewhere(context: Any) -> None:
        with observability.reattach(context):
            names.append(getattr(trace.get_current_span(), "name", ""))
            observability.set_attributes(thread=True)
        names.append(getattr(trace.get_current_span(), "name", ""))

    def work() -> None:
        thread = Thread(target=elsewhere, args=(observability.capture_context(),))
        thread.start()
        thread.join()

    _, said = await inside(work)
    assert names == ["chat script", ""]
    assert said["thread"] is True


class Mute:
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")


async def test_a_value_that_cannot_say_what_it_is_takes_no_other_with_it() -> None:
    """One that is nested too deep, or whose text cannot be had, is left out alone."""
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(20_000):
        inner["k"] = inner = {}

    def work() -> None:
        observability.set_attributes(before=1, deep=deep, mute=Mute(), held=[Mute()], after=2)

    _, said = await inside(work)
    assert (said["before"], said["after"]) == (1, 2)
    assert "mute" not in said


@pytest.mark.parametrize("odd", [None, 5, Mute(), [5], [{"role": Mute(), "content": [Mute()]}], {"role": "user"}])
async def test_an_adapter_may_hand_over_anything(odd: Any) -> None:
    """F23: what cannot be sent is left out; asking for it fails no call, with contents captured or not."""

    def work() -> None:
        observability.add_prompt(odd, system=odd)
        observability.add_completion(odd)
        observability.record_exception(odd, odd)
        with observability.reattach(odd):
            observability.set_attributes(after=1)

    for capture in (False, True):
        _, said = await inside(work, capture_content=capture)
        assert said["after"] == 1
        assert said["isthmus.outcome"] == "ok"
