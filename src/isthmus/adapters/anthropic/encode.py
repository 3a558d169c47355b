"""A context as the body of a Messages request, without what a host adds to it (model, stream, version)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from isthmus.adapters.anthropic.markers import mark_prompt, sorted_tools
from isthmus.adapters.anthropic.names import SCHEMAS, wire_name
from isthmus.adapters.anthropic.turns import Transcript
from isthmus.errors import InvalidRequestError
from isthmus.models.capabilities import OFF, ModelCapabilities, apply_thinking, lowered, unsupported, within
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext
from isthmus.models.declare import Declaration, declared
from isthmus.models.events import Note, NoteCode
from isthmus.models.options import put_options
from isthmus.models.reshape import normalise
from isthmus.models.strategy import ask_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is known of the model that is asked, and how its prompts are marked.

    Args:
        capabilities: what the model behind the endpoint can do; None where nothing is known.
        model: the model's id, for the log.
        cache_markers: whether to mark what the provider should keep of the prompt, where the model honours that.
        cache_ttl: how long it is kept: "5m", "1h", or "" for the provider's own.
    """

    capabilities: ModelCapabilities | None = None
    model: str = ""
    cache_markers: bool = False
    cache_ttl: str = ""

    @property
    def marks(self) -> bool:
        """Whether markers are wanted and honoured."""
        return self.cache_markers and (self.capabilities is None or self.capabilities.cache_markers)

    def knowing(self, capabilities: ModelCapabilities | None) -> Target:
        """The same with what is known of the model now; None changes nothing."""
        return self if capabilities is None else replace(self, capabilities=capabilities)


def build_body(ctx: GenerateContext, target: Target) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """The request's body, its keys always in the same order, and a note of each thing that was changed.

    Args:
        ctx: the context; never changed. Without a ceiling 8192 tokens are sent; an effort of None sends nothing, "off"
            what turns it off where a model starts with it on.
        target: the model.

    Raises:
        InvalidRequestError: something in it cannot be said to this API; names it.
    """
    ctx, said = _sayable(ctx)
    history = Transcript(ctx.brief).read(ctx.messages)
    if not history.turns:
        raise InvalidRequestError("messages: nothing to send; this API needs at least one message with content")
    maker = _Body(ctx, history, target)
    body: dict[str, Any] = {"max_tokens": maker.ceiling()}
    if history.system:
        only = history.system[0]
        plain = len(history.system) == 1 and only.keys() == {"type", "text"}
        body["system"] = only["text"] if plain else history.system
    body["messages"] = history.turns
    body.update(maker.tools())
    body.update(maker.thinking(ctx.effort))
    body.update(maker.output(body.get("output_config")))
    thinks = maker.thinks(ctx.options.get("thinking", body.get("thinking")))
    body.update(maker.tool_choice("tools" in body, thinks))
    body.update(maker.sampling(thinks))
    put_options(ctx, body, notes=maker.notes)
    if target.marks:
        maker.notes += mark_prompt(body, ttl=target.cache_ttl)
    return body, (*history.notes, *said, *maker.notes)


def _sayable(ctx: GenerateContext) -> tuple[GenerateContext, tuple[Note, ...]]:
    """The request, with a form that this API would refuse asked for in words."""
    form = ctx.output
    if form is None or form.response_format() is None:
        return ctx, ()
    made = normalise(form.json_schema(), SCHEMAS)
    if made.usable:
        return ctx, ()
    asked = ask_for(ctx, "prompted")
    return asked.ctx, (Note(NoteCode.PARAMETER_CHANGED, f"output: {made.report.summary()}"), *asked.notes)


def _tool(each: Declaration) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": each.name}
    if each.description:
        tool["description"] = each.description
    tool["input_schema"] = dict(each.parameters)
    if each.strict is not None:
        tool["strict"] = each.strict
    return tool


class _Body:
    """The members of a body beside the history; each method gives those that it owns."""

    def __init__(self, ctx: GenerateContext, history: Transcript, target: Target) -> None:
        self._ctx = ctx
        self._history = history
        self._target = target
        self.notes: list[Note] = []

    def note(self, code: NoteCode, detail: str) -> None:
        self.notes.append(Note(code, detail))

    def _unsupported(self, detail: str, code: NoteCode = NoteCode.PARAMETER_DROPPED) -> None:
        unsupported(self._ctx, detail, notes=self.notes, code=code)

    def tools(self) -> dict[str, Any]:
        if self._ctx.tools:
            tools = [_tool(each) for each in declared(self._ctx.tools, dialect=SCHEMAS, notes=self.notes)]
            return {"tools": sorted_tools(tools) if self._target.marks else tools}
        if self._history.tools and "tools" not in self._ctx.options:
            # The API refuses tool blocks in a history whose tools nobody declares; 2026-11.
            self.note(NoteCode.HISTORY_CHANGED, "tools: the history's own were declared, and none may be used")
            return {"tools": [{"name": name, "input_schema": {"type": "object"}} for name in self._history.tools]}
        return {}

    def tool_choice(self, has_tools: bool, thinks: bool) -> dict[str, Any]:
        choice = self._ctx.tool_choice
        if not self._ctx.tools:
            if choice not in (None, "none", "auto") and "tools" not in self._ctx.options:
                self._unsupported(f"tool_choice {choice!r} was left out: there are no tools to choose from")
            return {"tool_choice": {"type": "none"}} if has_tools else {}
        made = self._choice(choice)
        if thinks and made is not None and made["type"] in ("any", "tool"):
            self._unsupported(
                f"tool_choice {choice!r} became auto: a call cannot be forced while thinking is on",
                NoteCode.PARAMETER_CHANGED,
            )
            made = {"type": "auto"}
        if not self._ctx.parallel_tool_calls and (made is None or made["type"] != "none"):
            made = {**(made or {"type": "auto"}), "disable_parallel_tool_use": True}
        return {} if made is None else {"tool_choice": made}

    def _choice(self, choice: str | None) -> dict[str, Any] | None:
        if choice is None:
            return None
        if choice in _CHOICES:
            return {"type": _CHOICES[choice]}
        names = [spec.name for spec in self._ctx.tools]
        if choice not in names:
            ways = ", ".join([*_CHOICES, *names])
            raise InvalidRequestError(f"tool_choice: no tool is called {choice!r}; use one of {ways}")
        return {"type": "tool", "name": wire_name(choice)}

    def ceiling(self) -> int:
        """The output ceiling: the context's, and never more than the model's."""
        return within(self._ctx.max_output_tokens or DEFAULT_CEILING, self._target.capabilities, notes=self.notes)

    def thinking(self, effort: str | None) -> dict[str, Any]:
        """Adaptive thinking at a named level, even one that the model may refuse; "off" is what it needs to be off."""
        if effort is None:
            return {}
        caps = self._target.capabilities
        if effort.strip().lower() in OFF:
            made = apply_thinking({}, "off", caps, self._target.model)
            if "output_config" in made:
                self.note(NoteCode.PARAMETER_CHANGED, lowered(self._target.model))
            return made
        if caps is None or caps.adaptive_thinking:
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
        self._unsupported(f"effort {effort!r} was left out: this endpoint takes no adaptive thinking")
        return {}

    def thinks(self, thinking: Any) -> bool:
        """Whether the model will think: because it is asked to, or because it does unless it is told not to."""
        if isinstance(thinking, Mapping):
            return thinking.get("type") not in (None, "disabled")
        caps = self._target.capabilities
        return caps is not None and caps.adaptive_thinking and caps.thinking_default_on

    def output(self, config: dict[str, Any] | None) -> dict[str, Any]:
        form = self._ctx.output
        if form is None or form.response_format() is None:
            return {}
        made = normalise(form.json_schema(), SCHEMAS)
        if made.report.changes or made.report.problems:
            self.note(NoteCode.PARAMETER_CHANGED, f"output: {made.report.summary()}")
        return {"output_config": {**(config or {}), "format": {"type": "json_schema", "schema": made.schema}}}

    def sampling(self, thinks: bool) -> dict[str, Any]:
        """Temperature, top_p and stop sequences; thinking takes only 1, and 0.95 to 1; Messages API, 2026-11."""
        ctx = self._ctx
        made: dict[str, Any] = {}
        for name, value, least in (("temperature", ctx.temperature, 1), ("top_p", ctx.top_p, 0.95)):
            if value is not None and thinks and value < least:
                self._unsupported(f"{name} {value} was left out: it must be at least {least} while thinking is on")
            elif value is not None:
                made[name] = value
        stops = [text for text in ctx.stop if text.strip()]
        if len(stops) != len(ctx.stop):
            self._unsupported("stop: strings of white space alone were left out: this API refuses them")
        if stops:
            made["stop_sequences"] = stops
        if ctx.seed is not None:
            self._unsupported(f"seed {ctx.seed} was left out: this API has none")
        return made


_CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any", "none": "none"}
