"""What a chain is made of: tiers, or anything else that is an adapter, and what is known of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.adapters.base import ModelAdapter, as_adapter, names_of
from isthmus.errors import AdapterError, ConfigError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult

_FACES = ("stream", "generate")

Generate = Callable[[GenerateContext], StepResult | Mapping[str, Any] | Awaitable[StepResult | Mapping[str, Any]]]
Stream = Callable[[GenerateContext], AsyncIterator[Any]]


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One model of a chain, made of plain functions; also a test double.

    `dataclasses.replace(tier, generate=f)` drops the old `stream`, which would be preferred to the new `generate`:
    to keep one, give both.

    Args:
        id: its name, unique in a chain.
        window_tokens: the size of its context window, in tokens.
        max_output_tokens: the most that one reply of it may have, in tokens.
        generate: gives a reply whole, as a `StepResult` or a dict of its fields; may be async.
        stream: yields content events in order, then exactly one finish; preferred to `generate`.
        supports: what it can do, of "tools", "parallel-tools", "images", "documents", "audio", "output-schema".

    Raises:
        ConfigError: `supports` is no set of words, or `generate` or `stream` cannot be called.
    """

    id: str
    window_tokens: int
    max_output_tokens: int
    generate: Generate | None = None
    stream: Stream | None = None
    supports: frozenset[str] = frozenset()
    # The pair as last given. `replace` hands it on with everything else that it leaves alone, so a `stream` that is
    # still the pair's beside a `generate` that is not was left over, not meant.
    _pair: tuple[Generate | None, Stream | None] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        where = f"tier {self.id!r}"
        for face in _FACES:
            given = getattr(self, face)
            if given is not None and not callable(given):
                raise ConfigError(f"must be a function of a context, or None, not {given!r}", where=where, key=face)
        object.__setattr__(self, "supports", words(self.supports, where))
        if self._pair is not None:
            generate, stream = self._pair
            if self.stream is stream and self.generate is not generate:
                object.__setattr__(self, "stream", None)
        object.__setattr__(self, "_pair", (self.generate, self.stream))


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An adapter in its place in a chain, with what was read off it when the chain was defined."""

    adapter: Any
    id: str
    window_tokens: int | None
    max_output_tokens: int | None
    supports: frozenset[str]
    owns_retries: bool
    opens_runs: bool = False
    """Whether it has runs of its own."""
    chained: bool = False
    """Whether it is a chain, whose own tries are what counts."""
    provider: str = ""
    model: str = ""


def words(supports: Any, where: str) -> frozenset[str]:
    """What something supports.

    Raises:
        ConfigError: it is one string instead of several, or no words at all.
    """
    many = isinstance(supports, Iterable) and not isinstance(supports, str | Mapping)
    given = tuple(supports) if many else (supports,)
    if not many or not all(isinstance(word, str) for word in given):
        remedy = f"write {{{supports!r}}}" if isinstance(supports, str) else 'e.g. {"tools"}'
        raise ConfigError(f"must be a set of words, not {supports!r}: {remedy}", where=where, key="supports")
    return frozenset(given)


def callable_as(thing: Any) -> Any:
    """What to call for a tier: the thing itself if it has `stream(ctx)` or `generate(ctx)`, else its adapter.

    Raises:
        AdapterError: it is no adapter.
    """
    has_face = not isinstance(thing, type) and any(callable(getattr(thing, name, None)) for name in _FACES)
    return thing if has_face else as_adapter(thing)


def name_of(adapter: Any) -> str:
    """The id of an adapter; the name of its class where it has none."""
    return getattr(adapter, "id", None) or type(adapter).__name__


def member(thing: Any, place: str) -> Member:
    """What a chain needs to know of one adapter.

    Args:
        thing: a tier, an adapter, a chain, a `Model`, or an object with `stream(ctx)` or `generate(ctx)`.
        place: where it stands, for errors.

    Raises:
        AdapterError: it is no adapter.
        ConfigError: its id is empty, a number of it makes no sense, or what it supports is no set of words.
    """
    try:
        adapter = callable_as(thing)
    except AdapterError as error:
        named = f" ({thing.id!r})" if isinstance(getattr(thing, "id", None), str) else ""
        raise AdapterError(f"{place}{named}: {error}") from None
    name = getattr(adapter, "id", type(adapter).__name__)
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"give the tier a name, not {name!r}", where=place, key="id")
    where = f"tier {name!r}"
    window = _tokens(adapter, "window_tokens", where)
    ceiling = _tokens(adapter, "max_output_tokens", where)
    if window is not None and ceiling is not None and ceiling >= window:
        raise ConfigError(
            f"{ceiling} leaves no room for a prompt in a window of {window}: make it smaller than window_tokens",
            where=where,
            key="max_output_tokens",
        )
    provider, model = names_of(adapter, name)
    return Member(
        adapter=adapter,
        provider=provider,
        model=model,
        id=name,
        window_tokens=window,
        max_output_tokens=ceiling,
        supports=words(getattr(adapter, "supports", None) or (), where),
        owns_retries=bool(getattr(adapter, "handles_retries", False)),
        opens_runs=_opens_runs(adapter),
    )


def _opens_runs(adapter: Any) -> bool:
    """Whether it does so by itself: what an adapter inherits gives the adapter itself."""
    own = getattr(adapter, "open_run", None)
    return own is not None and getattr(own, "__func__", None) is not ModelAdapter.open_run


def _tokens(adapter: Any, name: str, where: str) -> int | None:
    value = getattr(adapter, name, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ConfigError(f"must be a whole number of tokens above 0, not {value!r}", where=where, key=name)
    return value


def members(tiers: Iterable[Any], where: str) -> tuple[Member, ...]:
    """All members of a chain, checked one by one and against each other.

    Raises:
        AdapterError: one is no adapter.
        ConfigError: there is none, or two have the same id.
    """
    found = tuple(member(tier, f"{where}: tiers[{index}]") for index, tier in enumerate(tiers))
    if not found:
        raise ConfigError("give it at least one tier", where=where, key="tiers")
    seen: set[str] = set()
    for each in found:
        if each.id in seen:
            raise ConfigError(
                "another tier has the same id: give each its own", where=f"{where}: tier {each.id!r}", key="id"
            )
        seen.add(each.id)
    return found


def lacking(members: Sequence[Member], needs: Iterable[str]) -> str | None:
    """What the members lack of what is needed, as text that names each tier; None where they lack nothing."""
    gaps = [(each.id, sorted(set(needs) - each.supports)) for each in members]
    shown = [f"tier {name!r} does not support {', '.join(missing)}" for name, missing in gaps if missing]
    return "; ".join(shown) or None
