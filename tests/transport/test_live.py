from __future__ import annotations

import pytest

from isthmus.errors import InvalidRequestError
from isthmus.transport import live
from isthmus.transport.http import HttpTransport
from isthmus.wire.call import WireCall


async def test_a_watcher_hears_of_a_call_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is told before anything is looked up or opened, and what the watcher raises stops the call."""
    heard: list[str] = []

    def watcher(host: str) -> None:
        heard.append(host)
        raise InvalidRequestError("not now")

    monkeypatch.setattr(live, "watchers", [watcher])
    transport = HttpTransport()
    with pytest.raises(InvalidRequestError, match="not now"):
        async with transport.open("http://example.invalid:9/x?key=1", WireCall(path="/"), headers={}):
            pass
    assert heard == ["example.invalid"]
    await transport.aclose()
