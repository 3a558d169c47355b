"""What an author's reading may do to the calls, and what it must not undo."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.base import ToolCall
from isthmus.adapters.langserve import LangServeAdapter
from support.langserve_frames import ONE, ROOT, body, chain_run, message, model_run, piece, reply, said

CALL = {"name": "f", "args": {"x": 1}, "id": "c"}
TOOLS = {"finish_reason": "tool_calls"}
LIMIT = {"finish_reason": "length"}


class Passing(LangServeAdapter):
    """An author who hands on what the library reads."""

    def _parse_output(self, output: Any) -> Any:
        return super()._parse_output(output)


PARSE = Passing(base_url="http://localhost").own_reading()


@pytest.mark.parametrize(
    "output",
    [
        message("Hi", tool_calls=[CALL], response_metadata=TOOLS),
        message("Hi", tool_calls=[{**CALL, "id": None}], id=None, response_metadata=TOOLS),
        message("Hi", invalid_tool_calls=[{"name": "f", "args": "{oops", "id": "c"}], response_metadata=TOOLS),
        message("Hi", tool_calls=[CALL], response_metadata=LIMIT),
        message([{"type": "thinking", "thinking": "Hm", "signature": "s"}], tool_calls=[CALL], response_metadata=TOOLS),
        "Hi",
    ],
    ids=["call", "without-ids", "broken", "cut", "thinking", "text"],
)
def test_handing_on_changes_nothing(output: Any) -> None:
    """F15: an override that returns what `super()` gave leaves the reply as it is, cut and broken calls included."""
    assert body(output, parse=PARSE) == body(output)
    assert reply(model_run(output=output), parse=PARSE) == reply(model_run(output=output))


def test_handing_on_keeps_written_arguments() -> None:
    """Arguments of a streamed call stay as the model wrote them."""
    end = message(
        "", tool_calls=[CALL], response_metadata=TOOLS, tool_call_chunks=[{**CALL, "args": '{"x":  1}', "index": 0}]
    )
    frames = model_run(piece(0, '{"x":  1}', "f", "c"), output=end)
    assert [call.arguments for call in reply(frames, parse=PARSE).calls] == ['{"x":  1}']


def test_a_renamed_broken_call_still_does_not_run() -> None:
    """Its arguments stay the text that they were, with the problem, under the new name."""

    def renamed(output: Any) -> Any:
        text, calls, usage = PARSE(output)  # type: ignore[misc]
        return text, [ToolCall(call.id, f"own_{call.name}", call.input) for call in calls], usage

    broken = message(invalid_tool_calls=[{"name": "f", "args": "{oops", "id": "c"}], response_metadata=TOOLS)
    (call,) = body(broken, parse=renamed).calls
    assert (call.tool, call.input, call.arguments, bool(call.problem)) == ("own_f", None, "{oops", True)


def test_calls_that_an_author_leaves_out_do_not_run() -> None:
    """A reading without calls leaves none, and the finish says so."""
    step = body(message("Hi", tool_calls=[CALL], response_metadata=TOOLS), parse=lambda output: ("Hi", [], {}))
    assert (step.calls, step.finish, step.raw_reason) == ((), "other", "tool_calls")


def test_a_text_output_keeps_the_calls_of_its_model() -> None:
    """A text has no place for calls: an author's reading of it does not take them away."""
    inner = model_run(
        said("Hi"), output=message("Hi", tool_calls=[CALL], response_metadata=TOOLS), run=ONE, parents=[ROOT]
    )
    frames = chain_run(*inner, output="Hi", chunks=("Hi",))
    assert reply(frames, parse=PARSE) == reply(frames)
    assert len(reply(frames).calls) == 1
    own = reply(frames, parse=lambda output: ("Hi", [], {"input_tokens": 1}))
    assert own.calls == reply(frames).calls
    made = reply(frames, parse=lambda output: ("Hi", [ToolCall("own", "g", {})], {}))
    assert [call.tool for call in made.calls] == ["g"]


def test_two_broken_calls_of_one_id_are_two() -> None:
    """What stands in a whole message is whole: the arguments of one call do not go on in the next."""
    broken = [{"name": "f", "args": text, "id": "c"} for text in ("{oops", "{again")]
    step = body(message(invalid_tool_calls=broken, response_metadata=TOOLS))
    assert [call.arguments for call in step.calls] == ["{oops", "{again"]


def test_two_equal_calls_are_two() -> None:
    """Two calls alike, which no id tells apart, are handed on as two, each under an id of its own."""
    twice = [{**CALL, "id": None}, {**CALL, "id": None}]
    step = body(message("", tool_calls=twice, id=None, response_metadata=TOOLS), parse=PARSE)
    assert [call.input for call in step.calls] == [CALL["args"]] * 2
    assert len({call.call_id for call in step.calls}) == 2
