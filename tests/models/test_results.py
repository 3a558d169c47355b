"""Results of tools: failures that are text, what counts as one, and what the model reads."""

import copy
import json
import pickle
from collections.abc import AsyncIterator
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.models.enums import ToolErrorKind
from isthmus.models.media import Media
from isthmus.models.parts import FileContent, ImageContent
from isthmus.models.promptparts import FilePart, ImagePart, part_content
from isthmus.models.results import ToolError, ToolFailure, ToolOutcome, result_content, shown, tool_outcome

PNG = ImageContent(Media.of(b"\x89PNG\r\n\x1a\n", "image/png"))


class Point(BaseModel):
    """A model."""

    x: int


@dataclass
class Pair:
    """A dataclass."""

    a: int
    b: Point


def test_an_error_is_frozen_and_its_kind_free() -> None:
    """`ToolError` takes a message and a kind that is None unless given, of the shared kinds or of one's own."""
    assert ToolError("m") == ToolError(message="m", kind=None)
    assert ToolError("m", "quota").kind == "quota"
    assert ToolError("m", ToolErrorKind.TIMEOUT).kind == "timeout"
    with pytest.raises(FrozenInstanceError):
        ToolError("m").message = "n"  # type: ignore[misc]


def test_a_failure_is_its_text() -> None:
    """A `ToolFailure` is a string equal to `text`, in hashes and in JSON too, and carries the error."""
    failure = ToolFailure(text="no such file", error=ToolError("ENOENT", "io"))
    assert failure == "no such file"
    assert isinstance(failure, str)
    assert type(failure.text) is str
    assert (failure.text, failure.error, hash(failure)) == (
        "no such file",
        ToolError("ENOENT", "io"),
        hash("no such file"),
    )
    assert json.dumps([failure]) == '["no such file"]'
    with pytest.raises(AttributeError):
        failure.error = ToolError("other")  # type: ignore[misc]


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda failure: pickle.loads(pickle.dumps(failure))],
    ids=["copy", "deep", "pickle"],
)
def test_a_failure_survives_copies(copied: Any) -> None:
    """Copies, deep ones and pickles keep text and error."""
    failure = ToolFailure(text="t", error=ToolError("m", ToolErrorKind.NONZERO_EXIT.value))
    again = copied(failure)
    assert (type(again), again, again.error) == (ToolFailure, failure, failure.error)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (ToolFailure(text="t", error=ToolError("m", "timeout")), ToolError("m", "timeout")),
        (ValueError("v"), ToolError("ValueError: v", "error")),
        ({"error": "no"}, ToolError("no", "error")),
        ({"error": {"code": 1}}, ToolError('{"code":1}', "error")),
    ],
    ids=str,
)
def test_what_counts_as_a_failure(result: Any, error: ToolError) -> None:
    """A failure, an exception, and a mapping with something under "error" are failed calls."""
    assert tool_outcome(result) == ToolOutcome(ok=False, error=error)


@pytest.mark.parametrize(
    "result", [None, "", "Error: x", 0, False, {}, {"error": None}, {"error": ""}, ["error"], Point(x=1)], ids=str
)
def test_anything_else_is_a_success(result: Any) -> None:
    """Text that merely says "error", an empty one under "error", and nothing at all are successes."""
    assert tool_outcome(result) == ToolOutcome(ok=True, error=None)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, "null"),
        ({"a": 1}, '{"a":1}'),
        (Point(x=1), '{"x":1}'),
        (Pair(1, Point(x=2)), '{"a":1,"b":{"x":2}}'),
        ([1, "a"], '[1,"a"]'),
        (PNG, [PNG.to_dict()]),
        (["see:", PNG], [{"type": "text", "text": "see:"}, PNG.to_dict()]),
        (ImagePart("iVBORw0KGgo=", "image/png"), [part_content(ImagePart("iVBORw0KGgo=", "image/png"))]),
        (
            [FilePart("eA==", "text/plain"), 1],
            [part_content(FilePart("eA==", "text/plain")), {"type": "text", "text": "1"}],
        ),
        ((PNG, Point(x=1)), [PNG.to_dict(), {"type": "text", "text": '{"x":1}'}]),
    ],
    ids=str,
)
def test_the_content_of_a_result(value: Any, content: Any) -> None:
    """Values are text, or parts where images or files are among them; what stands beside these becomes text."""
    assert result_content(value) == content


def test_files_stand_as_parts() -> None:
    """A file that a tool returns is a part with its name and its data."""
    made = result_content(FileContent(Media.of(b"%PDF-1.7", name="r.pdf")))
    assert isinstance(made, list)
    assert made[0]["type"] == "file"
    assert made[0]["file"]["filename"] == "r.pdf"


def test_a_content_for_a_person() -> None:
    """Images and files are named, not shown."""
    assert shown("t") == "t"
    assert shown(result_content(["see:", PNG])) == "see: (image_url)"  # type: ignore[arg-type]


async def _pieces() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("value", [(number for number in range(3)), _pieces()])
def test_a_generator_is_no_result(value: Any) -> None:
    """A generator that a handler returns fails with what to return: its name would say nothing to a model."""
    with pytest.raises(TypeError, match="return the whole of it"):
        result_content(value)
