"""Changed copies of frozen dataclasses."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from isthmus.harness.copies import copier
from isthmus.harness.outcome import Outcome
from isthmus.models.contract import GenerateContext

GIVEN = GenerateContext(brief="b", messages=({"role": "user", "content": "q"},), seed=7, options={"k": 1})


def test_a_copy_is_the_one_that_the_standard_library_makes() -> None:
    """Of any field one may be changed, and the others stay as they are."""
    copied = copier(GenerateContext)
    for each in fields(GenerateContext):
        changes = {each.name: getattr(GenerateContext(brief="other", stop=("x",)), each.name)}
        assert copied(GIVEN, **changes) == replace(GIVEN, **changes)
    outcome = Outcome(outcome="completed", text="t", steps=2)
    assert copier(Outcome)(outcome, text="u") == replace(outcome, text="u")


def test_a_copy_is_checked_as_every_other_one_is() -> None:
    """A copy goes through the constructor: a field that is none, and a value that cannot be, are refused."""
    copied = copier(GenerateContext)
    with pytest.raises(TypeError, match="stray"):
        copied(GIVEN, stray=1)
    with pytest.raises(ValueError, match="on_unsupported"):
        copied(GIVEN, on_unsupported="perhaps")
