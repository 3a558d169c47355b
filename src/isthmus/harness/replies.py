"""The replies of a conversation, kept as text: that takes half the room, and copies cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from isthmus.harness.plainjson import own_copy, plain_json
from isthmus.models.jsontext import dumps, loads


class Replies(Sequence[Mapping[str, Any]]):
    """Replies in order; each look at one gives a copy.

    Args:
        items: the replies; one that has no plain JSON form is kept as it is.
    """

    __slots__ = ("_kept",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._kept: tuple[Any, ...] = items._kept if type(items) is Replies else tuple(map(_packed, items))

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Replies: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, int):
            return _shown(self._kept[place])
        part = Replies()
        part._kept = self._kept[place]
        return part

    def __iter__(self) -> Iterator[Any]:
        return map(_shown, self._kept)

    def __add__(self, more: Iterable[Any]) -> Replies:
        """These and those after them."""
        both = Replies(more)
        both._kept = (*self._kept, *both._kept)
        return both

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Replies) and other._kept == self._kept:
            return True
        return isinstance(other, Sequence) and not isinstance(other, str | bytes) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} replies>"


def _packed(item: Any) -> Any:
    try:
        return dumps(plain_json(item, "reply"))
    except (TypeError, ValueError):
        return own_copy(item)


def _shown(kept: Any) -> Any:
    return loads(kept) if type(kept) is bytes else own_copy(kept)
