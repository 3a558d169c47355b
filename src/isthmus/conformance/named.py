"""From a name to what makes an adapter: a dotted path, an entry point, or a provider."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from isthmus.adapters.registry import resolve
from isthmus.conformance.watch import staying
from isthmus.errors import ConfigError, IsthmusError


def maker_of(ref: str) -> Callable[..., Any]:
    """What makes the adapter that a name stands for.

    Args:
        ref: a dotted path (`package.module:Class`), a provider, or "provider:model".

    Raises:
        ConfigError: nothing has that name, or its module does something else than being imported.
        MissingDependencyError: an optional package that it needs is not installed.
    """
    try:
        with staying():
            return _found(ref)
    except IsthmusError:
        raise
    except BaseException as error:
        # A module that is read may do anything, and need not end the program by it.
        raise ConfigError(f"{type(error).__name__} while it was imported: {error}", where=ref) from error


def _found(ref: str) -> Callable[..., Any]:
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
