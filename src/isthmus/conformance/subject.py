"""The adapter under judgement: how a fresh one is made, and what its maker's signature says."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Iterator, Mapping
from inspect import Parameter
from typing import Any

from isthmus.adapters.base import ModelAdapter, as_adapter
from isthmus.adapters.faces import STREAMS, WHOLES, source_of
from isthmus.conformance.watch import Hangs, within
from isthmus.models.config import Config
from isthmus.models.model import Model

SECRET_NAMES = frozenset(
    {"api_key", "key", "token", "access_token", "auth_token", "bearer_token", "secret", "client_secret", "password"}
)
NOWHERE = "http://127.0.0.1:9"
"""A base URL at which nothing answers."""
CEILING = 1234
"""An output ceiling that no adapter has by chance."""
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class CannotMake(Exception):
    """No adapter came out of what was given."""


class Subject:
    """What was given to the kit: an adapter class, a factory, or one adapter.

    Args:
        given: the class, the factory (its parameters filled by name) or the adapter.
        canary: the secret that every parameter for a key gets.
        settings: further values by parameter name, where the maker declares them.
        patience: seconds that making one may take.
    """

    def __init__(
        self, given: Any, canary: str, *, settings: Mapping[str, Any] | None = None, patience: float = 5.0
    ) -> None:
        self.given = given
        self.canary = canary
        self.settings = dict(settings or {})
        self.patience = patience
        self.name = _name(given)
        ready = isinstance(given, ModelAdapter | Model) or any(
            callable(getattr(given, face, None)) for face in ("stream", "generate")
        )
        self.fresh = isinstance(given, type) or (callable(given) and not ready)
        self.parameters: Mapping[str, Parameter] = _parameters(given) if self.fresh else {}

    @property
    def swallows(self) -> bool:
        """Whether its maker takes settings by `**kwargs` alone, which hides their names."""
        kinds = [item.kind for item in self.parameters.values()]
        return Parameter.VAR_KEYWORD in kinds and not any(kind in _NAMED for kind in kinds)

    @property
    def by_config(self) -> bool:
        """Whether its maker takes its connection as one `Config`."""
        item = self.parameters.get("config")
        if item is None or item.kind not in _NAMED or item.default is not Parameter.empty:
            return False
        kind = item.annotation
        named = kind.rpartition(".")[2] if isinstance(kind, str) else getattr(kind, "__name__", "")
        return kind is Parameter.empty or named == Config.__name__

    def declares(self, name: str) -> bool:
        """Whether its maker has a parameter of this name."""
        item = self.parameters.get(name)
        return item is not None and item.kind in _NAMED

    @property
    def is_movable(self) -> bool:
        """Whether its requests can be led to another address."""
        return self.declares("base_url") or self.by_config

    def values(self) -> dict[str, Any]:
        """What its maker is called with: every declared key gets the canary, an address leads nowhere."""
        values: dict[str, Any] = {}
        for name, item in self.parameters.items():
            if item.kind not in _NAMED:
                continue
            if name in self.settings:
                values[name] = self.settings[name]
            elif name == "config" and self.by_config:
                values[name] = Config(
                    self.canary, _guess("model"), base_url=self.settings.get("base_url", NOWHERE), max_retries=0
                )
            elif is_secret(name):
                values[name] = self.canary
            elif name == "base_url":
                values[name] = NOWHERE
            elif item.default is Parameter.empty:
                values[name] = _guess(name)
        return values

    async def make(self, **changes: Any) -> Any:
        """A fresh adapter, or the one that was given.

        Args:
            changes: values by parameter name that differ from the usual ones.

        Raises:
            CannotMake: the maker raised, or what it made is no adapter.
        """
        made = self.given
        try:
            if self.fresh:
                made = self.given(**{**self.values(), **changes})
                if inspect.isawaitable(made):
                    made = await within(made, self.patience)
            return as_adapter(made)
        except Hangs as error:
            raise CannotMake(f"nothing was made within {self.patience:g} s") from error
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Those that end a program too: it is the kit's, and its author's alone to end.
            raise CannotMake(f"{type(error).__name__}: {error}") from error


def is_secret(name: str) -> bool:
    """Whether a parameter or an attribute of this name holds a key."""
    bare = name.strip("_").lower()
    return bare in SECRET_NAMES or bare.endswith(("_api_key", "apikey", "_token", "_secret", "_password"))


def _name(given: Any) -> str:
    kind = given if isinstance(given, type) or inspect.isroutine(given) else type(given)
    return str(getattr(kind, "__qualname__", type(given).__qualname__)).replace("<locals>.", "")


def _parameters(given: Any) -> Mapping[str, Parameter]:
    if isinstance(given, type):
        # A class without a constructor of its own shows that of its base, which takes anything and wants nothing.
        if given.__init__ in (object.__init__, ModelAdapter.__init__):  # type: ignore[misc]
            return {}
        given = functools.partial(given.__init__, None)  # type: ignore[misc]
    try:
        return inspect.signature(given).parameters
    except (TypeError, ValueError):
        return {}


def _guess(name: str) -> Any:
    """A value for a parameter that has no default."""
    if "url" in name:
        return NOWHERE
    return {"max_tokens": CEILING, "timeout": 5.0}.get(name, f"conformance-{name}")


def faces_of(adapter: Any) -> tuple[str, ...]:
    """The call surfaces that its author wrote, whole replies last."""
    source = source_of(type(adapter))
    written = tuple(name for name in (*STREAMS, *WHOLES) if source is not None and name in source.written)
    own = getattr(type(adapter), "stream_chat", None)
    code = getattr(inspect.unwrap(own), "__code__", None) if callable(own) else None
    derived = code is not None and code.co_filename.replace("\\", "/").endswith("adapters/faces.py")
    return written if own is None or derived else (*written, "stream_chat")


def raw_method(adapter: Any, face: str) -> Any:
    """The author's own method, without what was wrapped around it when the class was created."""
    source = source_of(type(adapter))
    attribute = source.written.get(face) if source is not None else None
    if attribute is None:
        return getattr(adapter, face)
    get = getattr(type(attribute), "__get__", None)
    return attribute if get is None else get(attribute, adapter, type(adapter))


def inner(adapter: Any) -> Any:
    """The author's own object behind an adapter that stands for it."""
    return getattr(adapter, "plain", adapter)


def secrets_of(adapter: Any) -> Iterator[str]:
    """The values of an adapter's own attributes that are named like keys."""
    for name, value in list(getattr(inner(adapter), "__dict__", {}).items()):
        if is_secret(name) and isinstance(value, str) and len(value) >= 8:
            yield value
