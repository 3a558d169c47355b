"""Changed copies of frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import pytest

from isthmus.models.contract import GenerateContext
from isthmus.models.copies import copier
from isthmus.models.tools import ToolExecutionContext

GIVEN = GenerateContext(brief="b", messages=({"role": "user", "content": "q"},), seed=7, options={"k": 1})


def test_a_copy_is_the_one_that_the_standard_library_makes() -> None:
    """Of any field one may be changed, and the others stay as they are."""
    copied = copier(GenerateContext)
    for each in fields(GenerateContext):
        changes = {each.name: getattr(GenerateContext(brief="other", stop=("x",)), each.name)}
        assert copied(GIVEN, **changes) == replace(GIVEN, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known(ToolExecutionContext):
    by: str = ""
    made: str = field(init=False, default="here")


def test_a_copy_is_of_the_class_that_it_is_made_for() -> None:
    """What a class adds to another one's fields is in its copies."""
    context = _Known(run_id="r", by="me")
    copied = copier(_Known)(context, tool_call_id="c")
    assert (type(copied), copied) == (_Known, replace(context, tool_call_id="c"))


def test_a_copy_is_checked_as_every_other_one_is() -> None:
    """A copy goes through the constructor: a field that is none, and a value that cannot be, are refused."""
    copied = copier(GenerateContext)
    with pytest.raises(TypeError, match="stray"):
        copied(GIVEN, stray=1)
    with pytest.raises(ValueError, match="on_unsupported"):
        copied(GIVEN, on_unsupported="perhaps")
