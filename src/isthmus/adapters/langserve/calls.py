"""Which calls of an answer are the caller's to run, and what an author's own reading says of them."""

from __future__ import annotations

from typing import Any, cast

from isthmus.adapters.base import ToolCall
from isthmus.adapters.chat import peek
from isthmus.adapters.langserve.payload import DIALECT
from isthmus.adapters.langserve.reply import Answer, entries
from isthmus.adapters.openai_chat.calls import Calls, Settled
from isthmus.models.events import Call, FinishReason, Native, Note, NoteCode
from isthmus.models.finish import finish_of
from isthmus.models.normalise import make_call
from isthmus.wire.frame import Frame

_CUT = (FinishReason.LENGTH.value, FinishReason.CONTENT_FILTER.value)


def settle(answer: Answer, *, seed: str, frame: Frame, streamed: Calls | None = None) -> Settled:
    """The calls that the server has not run itself and that are whole, arguments as written wherever it says so.

    Args:
        answer: the output, read.
        seed: what tells this reply from others where its message has no id.
        frame: where the message came from.
        streamed: the calls joined from the pieces of the root run, if there were any.
    """
    message = answer.message or {}
    found, written = entries(message)
    left = [entry for entry in found if entry["id"] not in answer.answered]
    cut, doubtful = finish_of(answer.reason) in _CUT, answer.reason is None
    own = message.get("id")
    seed = own if isinstance(own, str) and own else seed
    # The output is the truth: pieces that say less than it are not all that there was.
    if streamed and len(left) == len(found) <= len(streamed):
        return streamed.settle(cut=cut, doubtful=doubtful, seed=seed)
    # Arguments that LangChain completed look whole: the last call of a reply that was cut may be such a one.
    guessed = left.pop() if cut and left and not written else None
    calls = Calls(DIALECT)
    for entry in left:
        calls.add(entry, frame, whole=True)
    settled = calls.settle(cut=cut, doubtful=doubtful, seed=seed)
    if guessed is not None:
        settled.natives.append(Native(DIALECT, "tool_call", guessed))
        detail = f"the call to {guessed['function']['name']} may be cut short and is no call"
        settled.notes.append(Note(NoteCode.CALL_CUT, detail))
    if answer.answered:
        ran = sum(entry["id"] in answer.answered for entry in found)
        settled.notes.append(Note(NoteCode.UNKNOWN_CONTENT, f"{ran} calls were run by the server itself"))
    return settled


def shown(calls: list[Call]) -> list[ToolCall]:
    """The calls as an author's reading gets them; arguments that are no JSON object stay text, so that none runs."""
    return [ToolCall(str(call.call_id), call.tool, cast(dict[str, Any], _input(call))) for call in calls]


def _input(call: Call) -> Any:
    return call.arguments if call.problem else call.input


def merged(given: Any, settled: Settled, *, answer: Answer) -> list[Call]:
    """The calls of an author's reading: those that he left as they were with all that is known of them.

    Args:
        given: what he returned: `ToolCall`, or objects and dicts of its shape.
        settled: the calls as the library reads them.
        answer: the output, read.
    """
    known = {entry["id"] for entry in entries(answer.message or {})[0]}
    left = list(settled.calls)
    found: list[Call] = []
    for item in given or ():
        name, value, call_id = peek(item, "name"), peek(item, "input"), peek(item, "id") or None
        # An id that the server left out is made from more than a reading sees.
        own = [call for call in left if call.call_id == call_id or call.call_id not in known]
        same = next((call for call in own if (call.tool, _input(call)) == (name, value)), None)
        if same is not None:
            left.remove(same)
        found.append(make_call(name, value, call_id=call_id) if same is None else same)
    return found
