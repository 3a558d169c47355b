"""From a name to what makes an adapter: a dotted path, an entry point, or a provider."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from isthmus.adapters.registry import resolve
from isthmus.errors import ConfigError


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
    try:
        found = resolve(provider)
    except ConfigError as unknown:
        # A factory of a module without a package, by a name in small letters.
        if not model.isidentifier() or find_spec(provider or "-") is None:
            raise unknown from None
        return resolve(ref).factory
    return functools.partial(found.factory, model=model)
