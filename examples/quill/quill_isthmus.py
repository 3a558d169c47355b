"""An adapter in a package of its own, for Quill, a gateway of nobody's with a wire format of its own.

Quill takes a POST to `/v3/talk`. It answers with one JSON object, or, asked for it live, with records of the form
`kind|JSON`, each ended by a form feed; the arguments of a call come in pieces of text.
"""

import aiohttp

from isthmus.adapters.base import ModelAdapter
from isthmus.errors import tier_error
from isthmus.models.events import Call, CallDelta, Finish, StepResult, Text, Usage
from isthmus.models.jsontext import loads
from isthmus.models.normalise import make_call
from isthmus.secret import Secret

_ENDS = {"finished": "stop", "wants_tools": "tool-calls", "out_of_ink": "length"}
_FAULTS = {"busy": "unavailable", "slow_down": "transient", "who_are_you": "credentials", "too_long": "overflow"}


class QuillAdapter(ModelAdapter):
    """Speaks with Quill; each setting is one of `[llm]`."""

    def __init__(self, *, model="quill-2", base_url="https://api.quill.example", api_key="", max_tokens=8192, desk=""):
        self.model = model
        self.base_url = base_url
        self.max_tokens = int(max_tokens) or 8192
        self.desk = desk
        self._key = Secret(api_key)

    async def stream(self, ctx):
        """The events of a live reply."""
        async with aiohttp.ClientSession() as session, await self._asked(session, ctx, live=True) as reply:
            uses, rest = {}, b""
            async for chunk in reply.content.iter_any():
                # A chunk ends where the network likes: only what a form feed ended is whole.
                *records, rest = (rest + chunk).split(b"\f")
                for record in records:
                    kind, _, text = record.partition(b"|")
                    item = loads(text)
                    if kind == b"ink":
                        yield Text(item["t"])
                    elif kind == b"use":
                        yield _piece(uses, item)
                    elif kind == b"oops":
                        raise _fault(item)
                    elif kind == b"end":
                        for use in uses.values():
                            yield _call(use)
                        yield Finish(_ENDS.get(item["why"], "other"), _usage(item), item["why"])
                        return
        raise tier_error("transient", "Quill's reply stopped before its end")

    async def generate(self, ctx):
        """A whole reply."""
        async with aiohttp.ClientSession() as session, await self._asked(session, ctx, live=False) as reply:
            item = loads(await reply.read())
        said = [Text(item["said"])] if item["said"] else []
        calls = [_call(use) for use in item["uses"]]
        return StepResult([*said, *calls], _ENDS.get(item["why"], "other"), item["why"], _usage(item))

    async def _asked(self, session, ctx, *, live):
        """The reply to a request, its head read; whoever enters it lets it go."""
        headers = {"X-Quill-Key": str(self._key)}
        reply = await session.post(f"{self.base_url}/v3/talk", json=self._body(ctx, live), headers=headers)
        if reply.status == 200:
            return reply
        async with reply:
            text = await reply.text()
        try:
            problem = loads(text)["problem"]
        except (ValueError, KeyError, TypeError):
            problem = {"code": "", "text": text[:200]}
        raise _fault(problem, reply.status, reply.headers.get("Retry-After"))

    def _body(self, ctx, live):
        return {
            "engine": self.model,
            "desk": self.desk,
            "brief": ctx.brief,
            "turns": [_turn(message) for message in ctx.messages],
            "skills": [{"title": tool.name, "hint": tool.description, "form": tool.parameters} for tool in ctx.tools],
            "ink": min(ctx.max_output_tokens or self.max_tokens, self.max_tokens),
            "live": live,
        }


def _turn(message):
    """A message of the transcript as Quill takes it."""
    if message["role"] == "tool":
        return {"from": "skill", "for": message["tool_call_id"], "said": message["content"]}
    turn = {"from": message["role"], "said": message.get("content") or ""}
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    uses = [{"use": use, "title": asked["name"], "with": asked["arguments"]} for use, asked in calls]
    return {**turn, "uses": uses} if uses else turn


def _piece(uses, item):
    """A piece of a call: kept, and shown."""
    use = uses.setdefault(item["use"], {"use": item["use"], "title": "", "with": ""})
    use["title"] += item.get("title", "")
    use["with"] += item.get("with", "")
    return CallDelta([*uses].index(item["use"]), item["use"], use["title"], item.get("with", ""))


def _call(use) -> Call:
    return make_call(use["title"], use["with"], call_id=use["use"])


def _usage(item):
    spent = item.get("spent")
    return Usage(input_tokens=spent["read"], output_tokens=spent["wrote"]) if spent else None


def _fault(problem, status=None, wait=None):
    kind = _FAULTS.get(problem["code"]) or ("unavailable" if (status or 0) >= 500 else "invalid")
    said = f"Quill: {problem['text']}"
    return tier_error(
        kind, said, status=status, retry_after=float(wait) if wait else None, code=problem["code"] or None
    )
