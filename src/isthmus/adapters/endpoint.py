"""What tells one server of a dialect from another: where it is, how it is paid, what it is called; a row of data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, quote, urlsplit

from isthmus.errors import ConfigError
from isthmus.models.capabilities import ModelCapabilities, declared_limits
from isthmus.secret import Secret
from isthmus.transport.credentials import KeyScheme, KeySource, covers
from isthmus.transport.request import base_of

_MODELS_KEPT = 64


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One server.

    Args:
        provider: the name that adapters and telemetry show.
        base_url: where it is; "" where each account has an address of its own.
        address: what such an address looks like, for the error that asks for one.
        path: appended to the base URL; "{model}" in it stands for the model's id.
        stream_path: the same for streams, where it differs.
        variable: the environment variable that holds its key, "" for none.
        hosts: the hosts that the variable's key may go to; a leading dot takes in all hosts below it.
        key_required: whether a request to one of these hosts without a key is an error.
        header: the header that the key is sent in.
        prefix: what stands before the key.
        takes_tokens: whether a signed token is taken in place of the key, as a bearer token.
        supports: what it takes, where that is less than its dialect can say.
        models: what is known of its models: part of a model's id → fields of `ModelCapabilities`.
    """

    provider: str
    base_url: str = ""
    address: str = ""
    path: str = ""
    stream_path: str = ""
    variable: str = ""
    hosts: tuple[str, ...] = ()
    key_required: bool = True
    header: str = "authorization"
    prefix: str = "Bearer "
    takes_tokens: bool = False
    supports: tuple[str, ...] | None = None
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _known: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def of(cls, provider: str, row: Mapping[str, Any]) -> Self:
        """The server that a row describes.

        Raises:
            ConfigError: the row has a field that means nothing here; names the nearest that does.
        """
        known = {
            each.name for each in fields(cls) if each.default is not MISSING or each.default_factory is not MISSING
        }
        for name in row:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
                raise ConfigError(f"a preset has no such field; {hint}", where=f"preset {provider!r}", key=name)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
        }
        return cls(provider=provider, **values)

    def url(self, given: str | None) -> str:
        """Where its requests go.

        Raises:
            ConfigError: no address is given, and it has none of its own; or nothing can be called there.
        """
        url = (given or "").strip() or self.base_url
        if not url:
            like = f", e.g. {self.address}" if self.address else ""
            where = f"provider {self.provider!r}"
            raise ConfigError(f"each account has an address of its own: set it{like}", where=where, key="base_url")
        return base_of(url)

    def is_home(self, url: str) -> bool:
        """Whether a URL leads to one of its own hosts."""
        return covers(self.hosts, url)

    def route(self, model: str, url: str, *, stream: bool) -> str:
        """The path of a request, with the query parameters that the base URL does not set itself."""
        path, _, query = ((stream and self.stream_path) or self.path).partition("?")
        given = {name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
        kept = "&".join(each for each in query.split("&") if each and each.partition("=")[0] not in given)
        return path.replace("{model}", quote(model, safe="@:")) + (f"?{kept}" if kept else "")

    def scheme(self, headers: Mapping[str, str] | None) -> KeyScheme:
        """How the key is sent, beside further headers whose values are hidden."""
        further = {name.lower(): Secret(value) for name, value in (headers or {}).items()}
        return KeyScheme(header=self.header, prefix=self.prefix, takes_tokens=self.takes_tokens, extra=further)

    def keys(self, url: str, *, trusted: bool, headers: Mapping[str, str] | None, **given: Any) -> KeySource:
        """Where its key comes from.

        Args:
            url: where requests go.
            trusted: whether the variable's key may go there although it is none of the server's hosts.
            headers: further headers of every request.
            given: `api_key`, `api_key_command` and `api_key_ttl_ms`, as a `KeySource` takes them.
        """
        return KeySource(
            **given,
            variable=self.variable,
            env_hosts=self.hosts,
            base_url=url,
            base_url_trusted=trusted,
            scheme=self.scheme(headers),
            required=self.key_required and self.is_home(url),
        )

    def capabilities(self, model: str, *tables: Mapping[str, Any] | None) -> ModelCapabilities:
        """What a model can do: by the first table that says so, at last by what is known of its family."""
        found = self._known.get(model)
        if found is None:
            # A row does not change, and is asked for the same few models again and again.
            found = declared_limits(model, self.models)
            kept = self._known if len(self._known) < _MODELS_KEPT else {}
            object.__setattr__(self, "_known", {**kept, model: found})
        for table in reversed(tables):
            if table:
                found = {**found, **declared_limits(model, table)}
        return ModelCapabilities(**found)

    def supported(self, usual: Iterable[str]) -> frozenset[str]:
        """What it takes: what its row says, else all that its dialect can say."""
        return frozenset(usual if self.supports is None else self.supports)
