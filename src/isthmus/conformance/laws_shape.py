"""Laws on what a reply is made of: that it comes, that it ends once, that its parts have their shape."""

from __future__ import annotations

from collections.abc import AsyncIterator

from isthmus.conformance.law import Found, Group, NotJudged, of_shape
from isthmus.conformance.reading import is_damaged, preview_problems, shown
from isthmus.conformance.report import WARNING
from isthmus.conformance.seen import Heard, Seen, refuses_tools
from isthmus.conformance.subject import CannotMake
from isthmus.errors import CredentialsError, InvalidRequestError, UnavailableError
from isthmus.models.events import Marker, Reset

GROUP = Group()
law = GROUP.law

_SLOW = 0.15
_AT_ONCE = 0.001
_RAN_OUT = (InvalidRequestError, IndexError, StopIteration, StopAsyncIteration, RuntimeError)


@law(
    "made",
    "An adapter comes out of its class or factory, and has a method that answers.",
    why="What cannot be made, or answers on no face, reaches no model.",
    fix="write stream, generate, stream_with_tools, chat, stream_response or get_response with its face's arguments; "
    "give a factory where the constructor needs more than names tell",
    after=(),
)
async def _made(seen: Seen) -> AsyncIterator[Found]:
    try:
        await seen.open()
    except CannotMake as error:
        yield Found(str(error), seen=type(error.__cause__).__name__, expected="an adapter")


@law(
    "answers",
    "Each face answers an ordinary request, with and without tools, within the time given.",
    why="A face that raises or hangs on an ordinary request cannot be used, nor proven.",
    fix="let the call return or raise; where it needs a network, give recordings= or a factory with a fake client",
    covers=("F24",),
)
async def _answers(seen: Seen) -> AsyncIterator[Found]:
    heards = [*await seen.usual()]
    if not any(heard.late for heard in heards):
        heards += await seen.without_tools()
    spoke = any(heard.reading is not None for heard in heards)
    for heard in heards:
        if heard.late:
            yield Found(
                f"{heard.face}: no answer within {heard.seconds:.1f} s",
                seen=f"{len(heard.items)} items" if heard.streams else "nothing",
                expected="a reply or an error",
            )
            return
        if heard.unclosed:
            yield Found(f"{heard.face}: aclose() did not end within the time given", expected="it closes, or raises")
        if heard.error is not None:
            if refuses_tools(seen, heard):
                continue
            ran_out = spoke and not seen.subject.fresh and isinstance(heard.error, _RAN_OUT)
            yield Found(
                f"{heard.face}: raised {type(heard.error).__name__} on an ordinary request{_hint(heard)}",
                seen=shown(heard.error),
                expected="a reply",
                **({"severity": WARNING} if ran_out else {}),
            )
        elif heard.reading is not None and any(problem.law == "error-event" for problem in heard.reading.problems):
            yield Found(f"{heard.face}: an 'error' event on an ordinary request", expected="a reply")


def _hint(heard: Heard) -> str:
    if isinstance(heard.error, UnavailableError | CredentialsError | ConnectionError):
        return ": nothing can be judged without its provider; give recordings=, or a factory with a fake client"
    return "" if heard.ask.tools else " without tools"


law(
    "event-shape",
    "A stream yields only what its face knows, each item with fields of the right types.",
    why="An unknown item is lost in silence by one reader and ends the reply at another.",
    fix="yield events or dicts of their shape; ('text', str), ('thinking', str) and last ('done', ChatResponse); str",
    covers=("F01", "F16"),
    after=("answers",),
)(of_shape("event-shape"))


law(
    "reply-shape",
    "A whole reply has the fields of its face, each of the right type.",
    why="Readers take the fields as they are: a wrong type fails far from its cause.",
    fix="return StepResult, ChatResponse(text, tool_calls, stop_reason) or ModelResponse with a choice",
    covers=("F16",),
    after=("answers",),
)(of_shape("reply-shape"))


law(
    "finish-present",
    "A stream ends with its terminal: Finish, ('done', ChatResponse) or 'completed'.",
    why="Without it nobody can tell a whole reply from one that was cut.",
    fix="yield the terminal last, and raise where the provider's own end did not come",
    covers=("F01", "F12"),
    after=("answers", "event-shape"),
)(of_shape("finish-present"))


law(
    "finish-once",
    "A stream has one terminal only.",
    why="The second one replaces the first in one reader, and its calls run twice in another.",
    fix="yield the terminal at one place, after the loop over the provider's events",
    covers=("F01", "F12"),
    after=("answers",),
)(of_shape("finish-once"))


law(
    "nothing-after-finish",
    "Nothing follows a stream's terminal.",
    why="What comes after it was promised not to come: it is shown, and is in no history.",
    fix="hold the terminal back until everything else was yielded",
    covers=("F01", "F04"),
    after=("answers", "finish-once"),
)(of_shape("nothing-after-finish"))


law(
    "text-agrees",
    "The text of a stream's terminal is what was streamed, or None.",
    why="What was shown and what is kept in the history would be two answers.",
    fix="yield all text as it arrives, and join those pieces for the terminal",
    covers=("F16",),
    after=("answers", "reply-shape", "event-shape"),
)(of_shape("text-agrees"))


@law(
    "characters-whole",
    "No character is broken: bytes are decoded only where a character is whole.",
    why="A network read ends anywhere; decoding each read by itself turns what lies across into U+FFFD.",
    fix="decode with codecs.getincrementaldecoder('utf-8')(), or split into lines before decoding",
    covers=("F06",),
    after=("answers",),
)
async def _characters_whole(seen: Seen) -> AsyncIterator[Found]:
    heards = [heard for heard in await seen.usual() if heard.reading is not None and heard.reading.text]
    damaged = [heard for heard in heards if is_damaged("".join([heard.reading.text, *heard.reading.pieces]))]  # type: ignore[union-attr]
    if damaged and _recorded_so(seen) and len(damaged) == len(heards):
        return
    for heard in damaged:
        yield Found(f"{heard.face}: broken characters in the text", seen=shown(heard.reading.text), expected="none")  # type: ignore[union-attr]


def _recorded_so(seen: Seen) -> bool:
    """Whether the provider itself sent U+FFFD."""
    cinema = seen.kept.get("cinema")
    body = cinema.usual().body if cinema is not None else b""
    return b"\xef\xbf\xbd" in body or b"\\ufffd" in body.lower()


@law(
    "streams-live",
    "A stream hands on its text as it arrives, not in one piece at the end.",
    why="The reader looks at nothing for as long as the reply takes.",
    fix="yield each piece when the provider sends it; a gateway that cannot stream may send one piece",
    after=("answers", "finish-present"),
)
async def _streams_live(seen: Seen) -> AsyncIterator[Found]:
    heards = [heard for heard in await seen.usual() if heard.streams and heard.times]
    if not heards:
        raise NotJudged("no stream is written")
    for heard in heards:
        spread = heard.times[-1] - heard.times[0]
        if (
            heard.seconds > _SLOW
            # A model that reads long and writes little is quick at the end too, but not as quick as what was held back.
            and spread < min(heard.seconds / 10, _AT_ONCE * len(heard.items))
            and len(heard.reading.text if heard.reading else "") > 1
        ):
            yield Found(
                f"{heard.face}: all of it came in the last moment",
                seen=f"{len(heard.items)} items after {heard.times[0]:.2f} s",
                expected="pieces as they arrive",
                severity=WARNING,
            )


@law(
    "side-events",
    "An adapter sends no Marker and no Reset, and what it previews of a call is that call's arguments.",
    why="Markers and resets are the chain's; a preview that says something else shows what will never run.",
    fix="leave Marker and Reset out; join each CallDelta of a call to exactly its arguments",
    covers=("F02", "F16"),
    after=("answers", "event-shape"),
)
async def _side_events(seen: Seen) -> AsyncIterator[Found]:
    heards = [heard for heard in await seen.usual() if heard.reading is not None and heard.reading.events]
    if not heards:
        raise NotJudged("no face speaks in events")
    for heard in heards:
        reading = heard.reading
        if reading is None:
            continue
        foreign = [event.type for event in reading.events if isinstance(event, Marker | Reset)]
        if foreign:
            yield Found(
                f"{heard.face}: {foreign[0]!r} comes from chains only", seen=foreign[0], expected="no such event"
            )
        for problem in preview_problems(reading):
            yield Found(problem.message, problem.seen, problem.expected)
