"""A scripted server of the Responses API over a WebSocket, to steer against: real sockets, the official SDK's models.

Every message of a client is held against the SDK's own models, and so is every event that a script sends.

Source: the event models of the official SDK, 3.57.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from isthmus.errors import MissingDependencyError

try:
    from openai.types.responses import ResponsesClientEvent, ResponsesServerEvent
    from pydantic import TypeAdapter, ValidationError
    from websockets.asyncio.server import ServerConnection, serve
    from websockets.exceptions import ConnectionClosed
except ImportError as error:
    raise MissingDependencyError("isthmus.conformance.live", error.name or "websockets", extra="openai") from error

_client: TypeAdapter[Any] = TypeAdapter(ResponsesClientEvent)
_server: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)
_USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 6,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 16,
}


def _filled(said: Any) -> Any:
    """With what the models insist on and the API does without: an image's detail, the id of what an assistant said."""
    if isinstance(said, list):
        return [_filled(each) for each in said]
    if not isinstance(said, dict):
        return said
    given = {name: _filled(value) for name, value in said.items()}
    if given.get("type") == "input_image":
        return {"detail": "auto", **given}
    return {"id": "", **given} if given.get("role") == "assistant" and given.get("type") == "message" else given


class Peer:
    """The server's end of one connection, as a script plays it.

    Attributes:
        heard_all: the client's messages so far, as they came.
        said: how many events were sent.
        response: the response that is being told, or was told last.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self.said = 0
        self._most: int | None = None
        self.heard_all: list[dict[str, Any]] = []
        self.response: dict[str, Any] = {}

    async def hear(self, kind: str = "response.create") -> dict[str, Any]:
        """The client's next message.

        Raises:
            AssertionError: it is of another type, or not what the SDK's own models allow.
            EOFError: the client is gone.
        """
        try:
            text = await self._connection.recv()
        except ConnectionClosed as closed:
            raise EOFError(f"the client is gone where it should send {kind}") from closed
        message: dict[str, Any] = json.loads(text)
        self.heard_all.append(message)
        try:
            read = _client.validate_python(_filled(message))
        except ValidationError as wrong:
            raise AssertionError(f"the client sent what the SDK's models do not allow: {wrong}") from wrong
        unknown = sorted(read.model_extra or ())
        if message.get("type") != kind or unknown:
            raise AssertionError(f"the client sent {message.get('type')} with {unknown} where {kind} should come")
        return message

    async def gone(self) -> None:
        """Wait until the client closes the connection.

        Raises:
            AssertionError: it sends something instead.
        """
        try:
            said = await self._connection.recv()
        except ConnectionClosed:
            return
        raise AssertionError(f"the client should close the connection and sent {said!r:.200}")

    async def say(self, kind: str, **fields: Any) -> None:
        """Send an event; `sequence_number` is filled in.

        Raises:
            AssertionError: it is not what the SDK's own models allow.
        """
        event = {"type": kind, "sequence_number": self.said, **fields}
        try:
            _server.validate_python(event)
        except ValidationError as wrong:
            raise AssertionError(f"a script sends what the SDK's models do not allow: {wrong}") from wrong
        if self.said == self._most:
            self.drop()
        self.said += 1
        await self.write(json.dumps(event))

    async def write(self, text: str) -> None:
        """Send any text; to a client that is gone it is lost."""
        try:
            await self._connection.send(text)
        except ConnectionClosed:
            return

    async def begin(self, response_id: str, after: str | None = None) -> None:
        """Begin a response.

        Args:
            response_id: its id.
            after: the response that it goes on from.
        """
        self.response = {
            "id": response_id,
            "object": "response",
            "created_at": 1790000000,
            "model": "scripted",
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": after,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }
        await self.say("response.created", response=self.response)

    async def text(self, *pieces: str) -> None:
        """Tell a message, each piece an event."""
        at, item = len(self.response["output"]), self._item("msg", {"type": "message", "role": "assistant"})
        await self.say("response.output_item.added", output_index=at, item={**item, "content": []})
        label = {"output_index": at, "item_id": item["id"], "content_index": 0, "logprobs": []}
        for piece in pieces:
            await self.say("response.output_text.delta", **label, delta=piece)
        await self.say("response.output_text.done", **label, text="".join(pieces))
        part = {"type": "output_text", "text": "".join(pieces), "annotations": []}
        await self._done(at, {**item, "content": [part]})

    async def call(self, name: str, arguments: str, *, call_id: str, **fields: Any) -> None:
        """Tell a function call.

        Args:
            name: the function.
            arguments: JSON text.
            call_id: the id that its output must carry.
            fields: more of the item, e.g. `**{"async": True}`.
        """
        said = {"type": "function_call", "name": name, "call_id": call_id, **fields}
        at, item = len(self.response["output"]), self._item("fc", said)
        await self.say("response.output_item.added", output_index=at, item={**item, "arguments": ""})
        label = {"output_index": at, "item_id": item["id"]}
        await self.say("response.function_call_arguments.delta", **label, delta=arguments)
        await self.say("response.function_call_arguments.done", **label, name=name, arguments=arguments)
        await self._done(at, {**item, "arguments": arguments})

    def _item(self, prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        number = len(self.response["output"])
        return {"id": f"{prefix}_{self.response['id']}_{number}", "status": "in_progress", **fields}

    async def _done(self, at: int, item: Mapping[str, Any]) -> None:
        done = {**item, "status": "completed"}
        self.response["output"].append(done)
        await self.say("response.output_item.done", output_index=at, item=done)

    async def end(self, reason: str | None = None, **fields: Any) -> None:
        """End the response.

        Args:
            reason: why it is incomplete, e.g. "steered"; None completes it.
            fields: more of the response.
        """
        status = "completed" if reason is None else "incomplete"
        details = None if reason is None else {"reason": reason}
        self.response |= {"status": status, "incomplete_details": details, "usage": _USAGE, **fields}
        await self.say(f"response.{self.response['status']}", response=self.response)

    async def accept(self, steer_id: str, into: str | None = None) -> None:
        """Say that an input into a response is queued; without its id, into the response being told."""
        await self.say("response.steer.accepted", steer=self._steer(into, id=steer_id))

    async def refuse(self, code: str, steering: Any, *, into: str | None = None, steer_id: str | None = None) -> None:
        """Say that an input could not be applied, and give it back."""
        named = {} if steer_id is None else {"id": steer_id}
        error = {"type": "invalid_request_error", "code": code, "message": f"refused: {code}"}
        await self.say("response.steer.failed", steer=self._steer(into, input=steering, **named), error=error)

    async def await_outputs(self, steer_id: str, *calls: tuple[str, str], into: str | None = None) -> None:
        """Say that an input waits for the outputs of calls, each a name and a call id."""
        stubs = [{"type": "function_call_output", "name": name, "call_id": call_id} for name, call_id in calls]
        reason = "waiting_for_required_input"
        steer = self._steer(into, id=steer_id)
        await self.say("response.steer.pending", steer=steer, reason=reason, required_input=stubs)

    def _steer(self, into: str | None, **fields: Any) -> dict[str, Any]:
        return {"previous_response_id": into or self.response["id"], **fields}

    def drop(self) -> None:
        """Cut the connection off, without a word."""
        self._connection.transport.abort()

    def drop_after(self, events: int) -> None:
        """Cut the connection off in place of the event after so many."""
        self._most = events


Script: TypeAlias = Callable[[Peer], Awaitable[None]]


class LiveServer:
    """A server that plays a script on each connection.

    Attributes:
        url: its address, for a client's `base_url`.
        peers: the connections so far.
        headers: what each of them was opened with.
        failures: what went wrong in the scripts.
    """

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        self._scripts = scripts
        self.url = ""
        self.peers: list[Peer] = []
        self.headers: list[dict[str, str]] = []
        self.failures: list[BaseException] = []
        self.open = 0

    async def play(self, connection: ServerConnection) -> None:
        """Play the next script, the last one again after that, and wait until the client goes."""
        peer = Peer(connection)
        self.peers.append(peer)
        self.headers.append(dict(connection.request.headers.raw_items()) if connection.request else {})
        self.open += 1
        try:
            await self._scripts[min(len(self.peers), len(self._scripts)) - 1](peer)
            await connection.wait_closed()
        except Exception as failure:
            self.failures.append(failure)
        finally:
            self.open -= 1


@asynccontextmanager
async def live_server(*scripts: Script) -> AsyncIterator[LiveServer]:
    """A server on a port of its own, as a block.

    Args:
        scripts: one for each connection, the last one for all further ones.

    Raises:
        AssertionError: at the end: a client sent what it may not, or a script does not fit.
        Exception: at the end: whatever else a script failed with.
    """
    server = LiveServer(scripts)
    async with serve(server.play, "127.0.0.1", 0, compression=None, close_timeout=0.3, max_size=None) as listening:
        server.url = f"http://127.0.0.1:{next(iter(listening.sockets)).getsockname()[1]}/v1"
        yield server
    await asyncio.sleep(0)
    if server.failures:
        raise server.failures[0]
