"""What applications most often want of a reply."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters.views import to_response
from isthmus.models import (
    ReasoningContent,
    ResponseReasoningItem,
    get_content_or_none,
    get_json_dict_or_none,
    get_reasoning_content_or_none,
    get_search_results_or_none,
    parse_content_filter_block,
)
from isthmus.models.events import Native, StepResult, Text
from isthmus.models.responses import Choice, Message, ModelResponse

EMPTY = [None, ModelResponse(choices=[]), ModelResponse(choices=[Choice(message=Message())])]


@pytest.mark.parametrize("response", EMPTY)
def test_what_is_not_there_is_none(response: Any) -> None:
    """No response, no choice and no content give None from every helper."""
    for helper in (
        get_content_or_none,
        get_json_dict_or_none,
        get_reasoning_content_or_none,
        get_search_results_or_none,
        parse_content_filter_block,
    ):
        assert helper(response) is None


def test_content_and_json_are_those_of_the_first_choice() -> None:
    """The text as it is; read as an object, fenced or not; None where it is none."""
    response = to_response(StepResult((Text('```json\n{"a": 1,}\n```'),)))
    assert get_content_or_none(response) == '```json\n{"a": 1,}\n```'
    assert get_json_dict_or_none(response) == {"a": 1}
    assert get_json_dict_or_none(to_response(StepResult((Text("prose"),)))) is None


def test_reasoning_is_found_on_the_response_or_its_message() -> None:
    """Reasoning of ours hangs on the response, a stranger's may hang on the message."""
    found = get_reasoning_content_or_none(to_response(StepResult((Text("x"),), reasoning="because")))
    assert found is not None
    assert (str(found), found.text, bool(found), found.item) == ("because", "because", True, None)
    theirs = ModelResponse.from_dict({"choices": [{"message": {"content": "x", "reasoning_content": "so"}}]})
    assert get_reasoning_content_or_none(theirs) == ReasoningContent("so")


@pytest.mark.parametrize("make", [lambda **data: ResponseReasoningItem(**data), dict, SimpleNamespace])
def test_a_reasoning_item_reads_as_markdown(make: Any) -> None:
    """Summary and content are sections; the item stays at hand; one without text is false."""
    item = make(id="rs", summary=[{"text": "a"}, {"text": "b"}], content=[{"text": "c"}, {"text": ""}])
    content = ReasoningContent(item)
    assert content.text == "## Summary\n\na\n\nb\n\n## Reasoning\n\nc"
    assert content.item is item
    assert not ReasoningContent(make(id="rs", summary=[], content=None))


def test_search_results_are_a_block_of_the_provider() -> None:
    """A block of that name on a reply of ours, or a key of a stranger's, is handed out as a list of dicts."""
    found = [{"title": "t", "url": "u"}]
    response = to_response(StepResult((Text("x"),), native=(Native("d", "search_results", found),)))
    assert get_search_results_or_none(response) == found
    assert get_search_results_or_none(ModelResponse.from_dict(response.to_dict())) == found
    assert get_search_results_or_none(ModelResponse(choices=[], model_extra={"search_results": found})) == found


BARE = {"jailbreak": {"filtered": True}}
HIT = {"hate": {"filtered": True, "severity": "high"}, "sexual": {"filtered": False, "severity": "safe"}}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"blocked": False, "source_type": "prompt", "content_filter_results": HIT}], None),
        ([], None),
        (None, None),
        (
            [{"blocked": True, "source_type": "prompt", "content_filter_results": HIT}],
            "prompt blocked by content filter: hate=high",
        ),
        (
            [
                {"blocked": False, "source_type": "prompt", "content_filter_results": HIT},
                {
                    "blocked": True,
                    "source_type": "completion",
                    "content_filter_results": {"jailbreak": {"filtered": True}},
                },
            ],
            "completion blocked by content filter: jailbreak=filtered",
        ),
        (
            [{"blocked": True, "source_type": "completion", "content_filter_results": {}}],
            "completion blocked by content filter: unspecified",
        ),
        ([{"blocked": True}], "response blocked by content filter: unspecified"),
    ],
)
def test_a_content_filter_says_what_it_blocked(entries: Any, said: str | None) -> None:
    """F20: source and categories with severity, "unspecified" where none is named, None where nothing is blocked."""
    assert parse_content_filter_block({"id": "r", "content_filters": entries}) == said
    if entries and said:
        assert parse_content_filter_block(entries[-1]) == said
