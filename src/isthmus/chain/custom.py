"""A model that no table lists, on an adapter class that speaks its provider's API."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any, TypeVar

from isthmus.chain.tier import member
from isthmus.errors import ConfigError

T = TypeVar("T")

_NAMES_ITS_CEILING = "max_tokens"


def custom_model(
    adapter: type[T],
    model: str,
    *,
    window_tokens: int,
    max_output_tokens: int,
    id: str | None = None,
    supports: Iterable[str] | None = None,
    **settings: Any,
) -> T:
    """An adapter for a model that its class knows nothing of.

    Args:
        adapter: an adapter class, e.g. a shipped one.
        model: the model's name, as its provider writes it.
        window_tokens: the size of its context window, in tokens.
        max_output_tokens: the most that one reply of it may have, in tokens; also what is asked for where a request
            names no ceiling.
        id: its name, unique in a chain; "provider:model" if left out.
        supports: what it can do, e.g. {"tools"}; None leaves it to the class.
        settings: further arguments of the class, e.g. `api_key` and `base_url`.

    Raises:
        ConfigError: a number that makes no sense, `supports` as one string, or something that is no class.
        TypeError: the class does not take a setting.
    """
    if not isinstance(adapter, type):
        raise ConfigError(f"must be an adapter class, not {adapter!r}", where="custom_model", key="adapter")
    if isinstance(supports, str):
        raise ConfigError(f"must be a set of words: write {{{supports!r}}}", where="custom_model", key="supports")
    if _NAMES_ITS_CEILING in signature(adapter).parameters:
        settings.setdefault(_NAMES_ITS_CEILING, max_output_tokens)
    make: Any = adapter
    made = make(model=model, **settings)
    made.window_tokens = window_tokens
    made.max_output_tokens = max_output_tokens
    if id is not None:
        made.id = id
    if supports is not None:
        made.supports = frozenset(supports)
    member(made, "custom_model")
    return made  # type: ignore[no-any-return]
