"""Assertions for the tests of an adapter's own package, on the laws of `isthmus.conformance`.

`conform` judges more, and says more; these three need nothing but the adapter, a reply, a tool turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from isthmus.adapters.base import ModelAdapter, ModelCapabilities, as_adapter
from isthmus.conformance.readers import read_chat
from isthmus.errors import AdapterError
from isthmus.models.contract import ToolSpec
from isthmus.models.turn_checks import check_tool_turn

__all__ = ["assert_adapter_contract", "assert_chat_response", "assert_tool_turn"]

_TURN_LAWS = {
    "turns-type": "turn-shape",
    "turn-type": "turn-shape",
    "turn-role": "turn-roles",
    "turn-assistant": "turn-assistant",
    "result-id": "turn-ids",
    "result-pair": "turn-ids",
    "result-text": "turn-results",
    "call-arguments": "turn-arguments",
}


def assert_adapter_contract(adapter: Any) -> None:
    """Check what can be seen of an adapter without asking it anything.

    Args:
        adapter: the adapter, not its class.

    Raises:
        AssertionError: it is none, or a part of it is not what it must be; names the law.
    """
    if isinstance(adapter, type):
        _fail("made", f"{adapter.__name__} is a class: give an instance of it")
    try:
        known = as_adapter(adapter)
    except AdapterError as error:
        _fail("made", str(error))
    for name in ("make_tool_turn", "capabilities", "chat", "stream_chat", "stream_with_tools"):
        if not callable(getattr(known, name, None)):
            _fail("made", f"{type(adapter).__name__}.{name} is no method")
    if not isinstance(adapter, ModelAdapter):
        return
    found = adapter.capabilities()
    if inspect.isawaitable(found) or not all(hasattr(found, name) for name in vars(ModelCapabilities())):
        _fail("capabilities", f"capabilities() must return a ModelCapabilities, not {type(found).__name__}")


def assert_chat_response(
    response: Any, *, expect_tool_calls: bool | None = None, tools: Iterable[ToolSpec] = ()
) -> None:
    """Check a reply of the chat face.

    Every spelling of a truncation passes, in any case, and so does a reason that is not known: but calls need one that
    says tool use.

    Args:
        response: what `chat` returned, or what came with "done".
        expect_tool_calls: whether there must be calls (True) or must be none (False).
        tools: what was offered, to tell a call whose arguments were cut.

    Raises:
        AssertionError: it breaks a law; names it.
    """
    problems = read_chat(response, tools).problems
    if problems:
        _fail(problems[0].law, problems[0].message)
    count = len(response.tool_calls or ())
    if expect_tool_calls is not None and expect_tool_calls != bool(count):
        _fail("same-calls", f"{'tool calls were' if expect_tool_calls else 'no tool call was'} expected, not {count}")


def assert_tool_turn(turns: Any, results: Sequence[tuple[Any, str]] = ()) -> None:
    """Check what `make_tool_turn` returned.

    Args:
        turns: the turns.
        results: the (`ToolCall`, output) pairs that it was given; without them only the turns' shape is checked.

    Raises:
        AssertionError: they break a law; names it.
    """
    for found in check_tool_turn(turns, results):
        _fail(_TURN_LAWS[found.rule], found.message)


def _fail(law: str, message: str) -> NoReturn:
    # Raised, not asserted: `python -O` leaves assertions out.
    raise AssertionError(f"{law}: {message}")
