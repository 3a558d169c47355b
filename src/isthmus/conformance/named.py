"""From a name to what makes an adapter: a dotted path, an entry point, or a provider."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from isthmus.adapters.registry import resolve


def maker_of(ref: str) -> Callable[..., Any]:
    """What makes the adapter that a name stands for.

    Args:
        ref: a dotted path (`package.module:Class`), a provider, or "provider:model".

    Raises:
        ConfigError: nothing has that name.
        MissingDependencyError: an optional package that it needs is not installed.
    """
    provider, colon, model = ref.partition(":")
    if not colon or "." in provider or "/" in provider or model[:1].isupper():
        return resolve(ref).factory
    return functools.partial(resolve(provider).factory, model=model)
