"""The names of a finish on the three faces, and the spellings of it that providers use. Must not know a provider."""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.models.events import FinishReason

_TRUNCATED = frozenset(
    {
        "length",
        "maxcompletiontokens",
        "maxlength",
        "maxnewtokens",
        "maxoutputtokens",
        "maxtokens",
        "modelcontextwindowexceeded",
        "modellength",
        "tokenlimit",
    }
)

_SPELLINGS: Mapping[FinishReason, tuple[str, ...]] = {
    FinishReason.STOP: ("complete", "completed", "end", "endturn", "eos", "eostoken", "stop", "stopsequence"),
    FinishReason.TOOL_CALLS: ("functioncall", "toolcall", "toolcalls", "tooluse"),
    FinishReason.LENGTH: tuple(sorted(_TRUNCATED)),
    FinishReason.CONTENT_FILTER: (
        *("blocklist", "contentfilter", "contentfiltered", "guardrailintervened", "imageprohibitedcontent"),
        *("imagerecitation", "imagesafety", "prohibitedcontent", "recitation", "safety", "sensitive", "spii"),
    ),
    FinishReason.REFUSAL: ("refusal", "refused"),
    FinishReason.PAUSE: ("pause", "pauseturn"),
}
_FINISHES = {spelling: finish.value for finish, spellings in _SPELLINGS.items() for spelling in spellings}

# The very words that most replies end with.
_USUAL = {word: _FINISHES[word.replace("_", "")] for word in ("stop", "end_turn", "tool_calls", "tool_use", "length")}

# Bedrock's `StopReason` and the Gemini API's `FinishReason`, 2026-11.
_UNREADABLE = frozenset(
    {
        "malformedfunctioncall",
        "malformedmodeloutput",
        "malformedresponse",
        "malformedtooluse",
        "missingthoughtsignature",
        "toomanytoolcalls",
        "unexpectedtoolcall",
    }
)

CHAT_NAMES: Mapping[str, str] = {
    "stop": "end_turn",
    "tool-calls": "tool_use",
    "length": "max_tokens",
    "content-filter": "content_filter",
    "refusal": "refusal",
    "pause": "pause_turn",
    "other": "end_turn",
}
"""The `stop_reason` of each finish."""

MODEL_NAMES: Mapping[str, str] = {
    "stop": "stop",
    "tool-calls": "tool_calls",
    "length": "length",
    "content-filter": "content_filter",
    "refusal": "stop",
    "pause": "stop",
    "other": "stop",
}
"""The `finish_reason` of each finish."""


def _bare(reason: str) -> str:
    """The letters of a reason; what follows a colon tells more of it."""
    return "".join(reason.partition(":")[0].split()).lower().replace("_", "").replace("-", "")


def is_output_truncation(stop_reason: str | None) -> bool:
    """Whether a stop reason, in anybody's spelling, says that the output ceiling cut the reply.

    Args:
        stop_reason: e.g. "max_tokens", "length", "maxTokens", "MAX_TOKENS"; None and "" are no truncation.
    """
    return isinstance(stop_reason, str) and _bare(stop_reason) in _TRUNCATED


def is_unreadable(stop_reason: str | None) -> bool:
    """Whether a stop reason says that the model's own output could not be read: what there is of it is no answer.

    Args:
        stop_reason: e.g. "malformed_tool_use", "function_call_filter: MALFORMED_FUNCTION_CALL"; None says nothing.
    """
    if not isinstance(stop_reason, str) or stop_reason in _USUAL:
        return False
    return any(_bare(part) in _UNREADABLE for part in stop_reason.split(":"))


def finish_of(reason: str | None) -> str:
    """The finish that a stop reason stands for, whatever its spelling; "other" where it is none that is known."""
    if reason in _USUAL:
        return _USUAL[reason]
    return _FINISHES.get(_bare(reason), FinishReason.OTHER.value) if reason else FinishReason.OTHER.value
