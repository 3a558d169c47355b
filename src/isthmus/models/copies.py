"""Changed copies of frozen dataclasses, for those that are made in every step of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

_Made = TypeVar("_Made")


def copier(kind: type[_Made]) -> Callable[..., _Made]:
    """What does for one dataclass as `dataclasses.replace` does, which asks anew for its fields each time.

    Args:
        kind: a dataclass whose constructor takes several fields.
    """
    names = [each.name for each in fields(kind) if each.init]  # type: ignore[arg-type]
    values = attrgetter(*names)

    def changed(given: _Made, **changes: Any) -> _Made:
        return kind(**dict(zip(names, values(given), strict=True), **changes))

    return changed
