"""Copies of plain values that share nothing that could change."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from isthmus.models.messages import LiveForm
from isthmus.models.plainjson import plain_json as plain_json


def own_copy(value: Any) -> Any:
    """A copy of mappings and lists all the way down; anything else, a live object beside its form too, is shared."""
    if isinstance(value, LiveForm):
        return copy(value)
    if type(value) is dict or isinstance(value, Mapping):
        # Text first, which most of a message is.
        return {key: item if type(item) is str else own_copy(item) for key, item in value.items()}
    return [own_copy(item) for item in value] if isinstance(value, (list, tuple)) else value
