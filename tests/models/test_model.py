"""The abstract model client: one method to write."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.errors import TransientError
from isthmus.models.model import Model
from support.face_kit import HELLO, model_response


class Client(Model):
    """Writes `get_response` alone."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer, or fail."""
        if self.error is not None:
            raise self.error
        return model_response()


async def test_get_response_alone_is_enough() -> None:
    """The stream is one "completed" event; a call of the model is `get_response`; a run yields the model."""
    client = Client()
    (event,) = [event async for event in client.stream_response(HELLO)]
    assert (event.kind, event.response) == ("completed", model_response())
    assert await client(HELLO) == model_response()
    async with client.open_run() as active:
        assert active is client
    assert (client.handles_retries, client.requires_streaming) == (False, False)
    with pytest.raises(NotImplementedError, match="Client cannot be steered"):
        await client.steer("x")


async def test_a_failing_stream_shows_one_error_and_raises() -> None:
    """The base stream yields one "error" event, then raises the same error."""
    error = TransientError("down")
    stream = Client(error).stream_response(HELLO)
    assert (await anext(stream)).error is error
    with pytest.raises(TransientError) as caught:
        await anext(stream)
    assert caught.value is error


def test_a_model_without_get_response_is_abstract() -> None:
    """It cannot be instantiated."""
    with pytest.raises(TypeError):
        Model()  # type: ignore[abstract]
