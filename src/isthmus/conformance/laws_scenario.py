"""Laws on how a provider's misfortune is told: judged where an author says how to bring it about."""

from __future__ import annotations

from collections.abc import AsyncIterator

from isthmus.conformance.law import Found, Group, NotJudged
from isthmus.conformance.reading import CallRead, shown
from isthmus.conformance.seen import Heard, Seen
from isthmus.errors import IsthmusError
from isthmus.models.events import FinishReason
from isthmus.models.fold import classify

GROUP = Group()
law = GROUP.law

TRUNCATES = "truncates"
BREAKS_ARGUMENTS = "breaks arguments"
ERRORS = "errors"
# The first group of words of which one is in a scenario's name tells its kind.
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (BREAKS_ARGUMENTS, ("arg", "json")),
    (
        ERRORS,
        ("error", "fail", "rate", "status", "raise", "exception", "overload", "unavail", "auth", "down", "timeout"),
    ),
    (ERRORS, ("400", "401", "403", "404", "429", "500", "502", "503", "529")),
    (TRUNCATES, ("trunc", "length", "ceiling", "limit", "max_tok", "max-tok", "max tok")),
    (BREAKS_ARGUMENTS, ("broken", "invalid", "malformed", "bad")),
    (ERRORS, ("cut", "drop", "reset", "disconnect")),
)
_EMPTY_WORDS = frozenset({"", "error", "failed", "failure", "none", "exception", "unknown error", "request failed"})
_GENERIC = ("an error occurred", "something went wrong", "unexpected error")


async def _scenes(seen: Seen, kind: str) -> list[tuple[str, Heard]]:
    """What the faces said in the scenarios of one kind.

    Raises:
        NotJudged: no scenario of the kind was given.
    """
    names = [name for name in seen.scenarios if kind_of(name) == kind]
    if not names:
        raise NotJudged("no scenario of this kind was given: scenarios={name: prepare}")
    return [(name, heard) for name in names for heard in await seen.scene(name)]


def kind_of(name: str) -> str:
    """Which kind of misfortune a scenario's name tells of; "" for none that is known."""
    return next((kind for kind, words in _WORDS if any(word in name.lower() for word in words)), "")


@law(
    "truncation-shown",
    "A reply that its provider cut at the output limit says so.",
    why="A partial answer that looks finished is taken for the whole one, and never continued.",
    fix='report the provider\'s own reason: stop_reason="max_tokens" (any spelling), Finish("length"), "length"',
    covers=("F12", "F01"),
    after=("made", "answers"),
)
async def _truncation_shown(seen: Seen) -> AsyncIterator[Found]:
    for name, heard in await _scenes(seen, TRUNCATES):
        reading = heard.reading
        if heard.face == "stream_chat" or heard.error is not None or reading is None or reading.problems:
            continue
        if reading.finish != FinishReason.LENGTH and not (reading.calls and reading.finish == FinishReason.TOOL_CALLS):
            yield Found(
                f"{heard.face}, scenario {name!r}: the truncation is hidden",
                shown(reading.reason or reading.finish),
                "length",
            )


@law(
    "arguments-told",
    "Arguments that are no JSON object are an error, or a call that says what is wrong with it; never an empty dict.",
    why="A tool that is run with nothing, or with half of its arguments, does the wrong thing.",
    fix="let the JSON error pass as a failure of the call, or leave Call.input None with the text in arguments",
    covers=("F15",),
    after=("made", "answers"),
)
async def _arguments_told(seen: Seen) -> AsyncIterator[Found]:
    for name, heard in await _scenes(seen, BREAKS_ARGUMENTS):
        reading = heard.reading
        if heard.error is not None or reading is None:
            continue
        if any(_told(call) for call in reading.calls):
            continue
        right = next(
            (usual.reading.said for usual in await seen.usual() if usual.face == heard.face and usual.reading), []
        )
        for call in reading.calls:
            if (call.name, call.input) not in right:
                said = f"{heard.face}, scenario {name!r}: broken arguments became a call"
                yield Found(said, shown(call.input), "an error")


def _told(call: CallRead) -> bool:
    """Whether a call says itself that its arguments are none."""
    return bool(call.problem) or (call.input is None and bool(call.arguments))


@law(
    "errors-raised",
    "A failure of the provider is raised, never returned as a reply.",
    why="An error text that is taken for the answer is shown, stored, and sent back as history.",
    fix="raise (a TierError, or whatever your client raises); return replies only",
    covers=("F01", "F18"),
    after=("made", "answers"),
)
async def _errors_raised(seen: Seen) -> AsyncIterator[Found]:
    for name, heard in await _scenes(seen, ERRORS):
        if heard.late:
            yield Found(f"{heard.face}, scenario {name!r}: neither a reply nor an error", "nothing", "an error")
        elif heard.error is None and not _says_so(heard):
            said = heard.reading.text if heard.reading else heard.value
            yield Found(f"{heard.face}, scenario {name!r}: the failure came as a reply", shown(said), "an exception")


def _says_so(heard: Heard) -> bool:
    """Whether the failure shows in another way: a stream without its terminal is one to every reader."""
    problems = heard.reading.problems if heard.reading is not None else []
    return any(problem.law in ("finish-present", "error-event") for problem in problems)


@law(
    "errors-speak",
    "An error says what went wrong: a message of its own, and a class that tells what may be done.",
    why="An opaque error can be neither retried nor mended: the chain does not know whether to try again.",
    fix="raise tier_error(class, message) or let the client's own exception pass with its status",
    covers=("F18", "F09"),
    after=("made", "answers", "errors-raised"),
)
async def _errors_speak(seen: Seen) -> AsyncIterator[Found]:
    for name in seen.scenarios:
        await seen.scene(name)
    heards = [heard for heard in seen.heards if isinstance(heard.error, Exception)]
    if not heards:
        raise NotJudged("no call failed: scenarios={'error': prepare} makes one fail")
    said: set[str] = set()
    for heard in heards:
        error = heard.error
        if not isinstance(error, Exception) or heard.face in said:
            continue
        said.add(heard.face)
        words = str(error).strip().strip(".!").lower()
        if (words in _EMPTY_WORDS or words.startswith(_GENERIC)) and not _known(error):
            yield Found(
                f"{heard.face}: {type(error).__name__} says nothing", shown(error), "what failed, and its status"
            )
        elif type(error) in (Exception, BaseException) and not _known(error):
            said_so = f"{heard.face}: a bare Exception tells nobody what may be done"
            yield Found(said_so, shown(error), "a class of its own")


def _known(error: Exception) -> bool:
    """Whether its class, its status or its cause tells what may be done about it."""
    if isinstance(error, IsthmusError | ConnectionError | TimeoutError):
        return True
    status = getattr(error, "status_code", None) or getattr(error, "status", None) or getattr(error, "response", None)
    return status is not None or classify(error).error_class != "unclassified" or error.__cause__ is not None
