"""What a host tells of the limits of its models, asked for beside a turn and kept for the process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from isthmus.adapters.codec import Transport
from isthmus.adapters.drive import Keys
from isthmus.errors import TierError
from isthmus.models.jsontext import loads
from isthmus.secret import Address
from isthmus.wire.call import WireCall

_SECONDS = 5.0
_MOST = 1_000_000
# `ModelInfo` of the Models API, 2026-11.
_FIELDS: Mapping[str, str] = {"context_window": "max_input_tokens", "max_output_tokens": "max_tokens"}
_NOTHING: Mapping[str, Any] = MappingProxyType({})

_log = logging.getLogger("isthmus.adapters.anthropic")
_known: dict[str, Mapping[str, Any]] = {}
_asking: set[str] = set()


class ModelLookup:
    """The limits of one model, as its host tells them.

    Args:
        url: the address of the model's entry.
        headers: plain headers of the request.
        transport: what carries it.
        keys: what authorises it.
    """

    def __init__(self, url: Address, headers: Mapping[str, str], *, transport: Transport, keys: Keys) -> None:
        self._place = url
        self._call = WireCall(path=url, stream=False, headers=headers, method="GET")
        self._transport, self._keys = transport, keys

    @property
    def found(self) -> Mapping[str, Any]:
        """The limits by name; empty where they are not known, or not yet."""
        return _known.get(self._place, _NOTHING)

    @property
    def due(self) -> bool:
        """Whether nobody has asked yet."""
        return self._place not in _known and self._place not in _asking

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None, None]:
        """Ask while the block runs: nothing in it waits, and what is not answered when it ends is given up."""
        asking = asyncio.create_task(self._ask())
        _asking.add(self._place)
        try:
            yield
        finally:
            _asking.discard(self._place)
            asking.cancel()
            # Not awaited itself: its cancellation could not be told from one of the turn.
            await asyncio.wait((asking,))
            if not asking.cancelled() and asking.exception() is not None:
                _log.debug("the limits of a model could not be had: %s", type(asking.exception()).__name__)

    async def _ask(self) -> None:
        """Keep the answer; a failure is kept too, as there being none, and is nobody's error."""
        try:
            async with asyncio.timeout(_SECONDS):
                headers = await self._keys.headers()
                async with self._transport.open(self._call.path, self._call, headers=headers) as reply:
                    entry = loads(await reply.read(_MOST)) if reply.status == 200 else None
        except (TierError, OSError, ValueError, RecursionError) as error:
            _log.debug("the limits of a model could not be had: %s", type(error).__name__)
            entry = None
        told = entry if isinstance(entry, dict) else {}
        counts = {ours: told.get(theirs) for ours, theirs in _FIELDS.items()}
        _known[self._place] = {name: count for name, count in counts.items() if type(count) is int and count > 0}
