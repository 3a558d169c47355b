"""Wrong uses of the models layer, as somebody makes them who reads only its documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from isthmus import models as m
from isthmus.models import GenerateContext
from isthmus.models.run import DefaultRunContext

FILE = '+++\nname = "p"\n[variables]\na = "int"\n+++\n+++ user\n{{ a }}\n'
CONFIG = m.Config(api_key="k", model="m")


def unannotated(city):  # type: ignore[no-untyped-def]
    """Look up."""
    return city


def spread(*cities: str) -> str:
    """Look up."""
    return "".join(cities)


def look(city: str) -> str:
    """Look up."""
    return city


def template(text: str, **values: Any) -> Any:
    """Render one."""
    return m.PromptTemplate(user_template=text).render_messages(values)


def reply(**data: Any) -> Any:
    """Read one."""
    return m.ModelResponse.from_dict(data)


class Nameless(m.Factory[Any]):
    """A factory that names no client."""


tool = partial(m.as_tool, look)
say = {"role": "user", "content": "x"}

# What is done, where the error says it is, and what it says to do about it.
WRONG: dict[str, tuple[Callable[[], Any], str, str]] = {
    "no annotation": (lambda: m.as_tool(unannotated), "city", "annotat"),
    "star arguments": (lambda: m.as_tool(spread), "cities", r"\*|name"),
    "two tools of a name": (lambda: m.Tools([tool(), tool()]), "look", "name"),
    "a choice of no tool": (lambda: m.Tools([tool()], tool_choice="sometimes"), "tool_choice", "auto|required|none"),
    "negative limit": (lambda: m.Tools([tool()], tool_call_limits={"look": -1}), "tool_call_limits", "0|1|above|whole"),
    "negative time-out": (lambda: m.Tools([tool()], tool_call_timeout=-1), "tool_call_timeout", "above 0|seconds"),
    "no round trips": (lambda: m.Tools([tool()], max_tool_round_trips=-1), "max_tool_round_trips", "whole|from"),
    "unknown field": (lambda: tool().replace(handlr=look), "handlr", "handler|takes"),
    "empty origin": (lambda: m.internal_message(say, origin=""), "origin", "say what made the message"),
    "ephemeral as a number": (lambda: m.internal_message(say, origin="o", ephemeral=1), "ephemeral", "True or False"),  # type: ignore[arg-type]
    "a text as a message": (lambda: m.internal_message("hi", origin="o"), "message", "must be a dict"),  # type: ignore[arg-type]
    "one message as a list": (lambda: m.provider_messages(say), "messages", "must be a list"),  # type: ignore[arg-type]
    "no message in a list": (lambda: m.provider_messages([say, 5]), r"messages\[1\]", "must be a dict with a role"),  # type: ignore[list-item]
    "no role": (lambda: m.to_neutral([{"content": "x"}]), r"messages\[0\]", "give it a role"),
    "a stored item elsewhere": (
        lambda: m.to_neutral([{"type": "item_reference", "id": "i"}]),
        r"messages\[0\].*'i'",
        "put its text in its place",
    ),
    "bytes as content": (lambda: m.to_neutral([{"role": "user", "content": b"x"}]), r"messages\[0\]", "send text"),
    "no template": (lambda: m.PromptTemplate(), "PromptTemplate", "give system_template, user_template"),
    "empty template": (
        lambda: m.PromptTemplate(system_template=""),
        "system_template",
        "write its text, or leave it out",
    ),
    "variable missing": (lambda: template("a\n{{ b }}"), "line 2.*'b'", "pass it in `values`"),
    "private attribute": (lambda: template("{{ x.__class__ }}", x=1), "line 1.*__class__", "compute the rest before"),
    "braces": (lambda: template("{% if %}"), "line 1", "raw"),
    "bare parts": (lambda: m.MultiPartPromptTemplate(user_parts=["x"]), r"user_parts\[0\]", "must be a TextPart"),  # type: ignore[list-item]
    "a type as a form": (
        lambda: m.PromptTemplate(user_template="x", output_schema=int),
        "output_schema",
        r"OutputSchema\(",
    ),  # type: ignore[arg-type]
    "a data URL as data": (
        lambda: m.ImagePart("data:;base64,AA==", "image/png"),
        "base64_data",
        "after its comma",
    ),
    "a document as an image": (lambda: m.ImagePart("AA==", "application/pdf"), "ImagePart", "use FilePart"),
    "instructions of images": (
        lambda: m.render_instruction_text(
            m.PromptSpec(m.MultiPartPromptTemplate(system_parts=[m.ImagePart("AA==", "image/png")]))
        ),
        "input_image",
        "move",
    ),
    "no system message": (
        lambda: m.render_instruction_text(m.PromptSpec(m.PromptTemplate(user_template="x"))),
        "no system message",
        "give it system_template",
    ),
    "a text as a prompt": (lambda: m.PromptSpec("x"), "PromptSpec.template", "wrap the text"),  # type: ignore[arg-type]
    "another type in a file": (
        lambda: m.PromptTemplate.from_text(FILE, place="p.md").render_messages({"a": "1"}),
        "p.md, line 4: 'a'",
        "pass another value",
    ),
    "a file without its end": (
        lambda: m.PromptTemplate.from_text("+++\nx", place="p.md"),
        "p.md, line 1",
        "put a line",
    ),
    "undeclared variable": (
        lambda: m.PromptTemplate.from_text(FILE.replace("{{ a }}", "{{ a }}{{ b }}"), place="p.md"),
        "p.md, line 7: 'b'",
        r"add `b = ",
    ),
    "the schema of text": (lambda: m.OutputSchema(str).json_schema(), "str|text", "text"),
    "open dict under strict": (
        lambda: m.OutputSchema(dict[str, int]).json_schema(),
        "dict",
        "strict_json_schema=False",
    ),
    "an open object made strict": (
        lambda: m.ensure_strict_json_schema({"type": "object", "additionalProperties": {"type": "integer"}}),
        "root: an object with keys of any name",
        "strict_json_schema=False",
    ),
    "no key": (lambda: m.Config(api_key="", model="m"), "Config: api_key", "give the key"),
    "no scheme": (lambda: m.Config(api_key="k", model="m", base_url="host"), "Config: base_url", "write https://host"),
    "tracing as text": (lambda: m.Config(api_key="k", model="m", tracing="ENABLED"), "tracing", "ModelTracing.ENABLED"),  # type: ignore[arg-type]
    "no client": (lambda: Nameless(CONFIG), "Nameless: client", "set it to the class"),
    "no limit at all": (lambda: m.ConcurrentRequestLimiter(0), "max_concurrent", "whole number from 1"),
    "one limiter as a list": (
        lambda: m.CompositeRateLimiter(m.ConcurrentRequestLimiter(1)),  # type: ignore[arg-type]
        "CompositeRateLimiter: limiters",
        "must be a list",
    ),
    "no parentheses": (lambda: m.retry_on_errors(look), "retry_on_errors: max_retries", r"write @retry_on_errors\(\)"),  # type: ignore[arg-type]
    "no choices": (lambda: reply(choices=5), r"\$\.choices", "Expected `array`"),
    "a counter that is none": (
        lambda: asyncio.run(_counted()),
        "'n'",
        "set it to one first",
    ),
    "a name in the place of tools": (lambda: GenerateContext(tools="look"), "tools", "must be a sequence"),  # type: ignore[arg-type]
}


async def _counted() -> int:
    return await DefaultRunContext({"n": "x"}).increment("n")


def test_there_are_thirty() -> None:
    """The table has at least 30 wrong uses."""
    assert len(WRONG) >= 30


@pytest.mark.parametrize("use", WRONG)
def test_a_wrong_use_names_its_place_and_the_remedy(use: str) -> None:
    """A wrong use is a documented error at once, whose text has the place and what to do about it."""
    do, place, remedy = WRONG[use]
    with pytest.raises((ValueError, TypeError, m.ModelsException), match=f"(?s){place}") as caught:
        do()
    assert caught.match(f"(?s){remedy}")
