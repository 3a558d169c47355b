"""A context as the body of a Converse request; the model stands in its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.adapters.anthropic.encode import Target
from isthmus.adapters.bedrock.names import MESSAGES_VENDOR, SCHEMAS
from isthmus.adapters.bedrock.points import place_points
from isthmus.adapters.bedrock.turns import ConverseTranscript
from isthmus.errors import InvalidRequestError
from isthmus.models.capabilities import EFFORTS, OFF, ModelCapabilities, apply_thinking, lowered, unsupported, within
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext
from isthmus.models.declare import Declaration, declared
from isthmus.models.dialects import legal_name
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import dumps
from isthmus.models.options import put_options
from isthmus.models.reshape import normalise

_EXTRA = "additionalModelRequestFields"
# Members that an option adds to instead of standing in their place.
_MERGED = ("inferenceConfig", "outputConfig", _EXTRA)


def build_body(
    ctx: GenerateContext, target: Target, *, vendor: str, model: str
) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """The request's body, its keys always in the same order, and a note of each thing that was changed.

    Args:
        ctx: the context; never changed.
        target: what is known of the model, and how its prompts are marked.
        vendor: whose model it is, "" where unknown.
        model: its id.

    Raises:
        InvalidRequestError: something in it cannot be said to this API; names it.
    """
    history = ConverseTranscript(ctx.brief, takes_messages=vendor == MESSAGES_VENDOR)
    history.read(ctx.messages)
    system, turns = history.converse()
    maker = _Body(ctx, tuple(history.tools))
    body: dict[str, Any] = {"messages": turns}
    if system:
        body["system"] = system
    thinking, level = _thinking(ctx.effort, target.capabilities, vendor=vendor, model=model)
    maker.check_effort(ctx.effort, target.capabilities, said=level, model=model)
    body["inferenceConfig"] = maker.inference(target.capabilities)
    body.update(maker.tools(_thinks(ctx.options.get(_EXTRA)) or _thinks(thinking)))
    output = {**maker.output(), **level}
    if output:
        body["outputConfig"] = output
    if thinking:
        body[_EXTRA] = thinking
    put_options(ctx, body, notes=maker.notes, merged=_MERGED)
    # Other vendors' models refuse points, or keep prompts by themselves.
    points = place_points(body, ttl=target.cache_ttl) if target.marks and vendor == MESSAGES_VENDOR else []
    return body, (*history.notes, *maker.notes, *points)


def _thinking(
    effort: str | None, capabilities: Any, *, vendor: str, model: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What asks for a level of effort: the model's own fields, and `outputConfig.effort`; Converse, 2026-11."""
    if effort is None or (capabilities is not None and not capabilities.adaptive_thinking):
        return {}, {}
    level = effort.strip().lower()
    if vendor != MESSAGES_VENDOR:
        return {}, {} if level in OFF else {"effort": level}
    if level not in OFF and level not in EFFORTS:
        # A word that only the model may know: it refuses what it does not.
        return {"thinking": {"type": "adaptive"}}, {"effort": level}
    fields = apply_thinking({}, effort, capabilities, model)
    return fields, fields.pop("output_config", {})


def _thinks(fields: Any) -> bool:
    thinking = fields.get("thinking") if isinstance(fields, Mapping) else None
    return isinstance(thinking, Mapping) and thinking.get("type") not in (None, "disabled")


class _Body:
    """The members of a body beside the history; each method gives those that it owns."""

    def __init__(self, ctx: GenerateContext, used: tuple[str, ...]) -> None:
        self._ctx = ctx
        self._used = used
        self.notes: list[Note] = []

    def _note(self, detail: str, code: NoteCode = NoteCode.PARAMETER_CHANGED) -> None:
        self.notes.append(Note(code, detail))

    def _unsupported(self, detail: str, code: NoteCode = NoteCode.PARAMETER_DROPPED) -> None:
        unsupported(self._ctx, detail, notes=self.notes, code=code)

    def check_effort(
        self, effort: str | None, capabilities: ModelCapabilities | None, *, said: Mapping[str, Any], model: str
    ) -> None:
        """Say that a level is left out where the endpoint takes none, or that the lowest stands for its absence."""
        level = effort.strip().lower() if effort is not None else ""
        if said and level in OFF:
            self._note(lowered(model))
        if level not in OFF and capabilities is not None and not capabilities.adaptive_thinking:
            self._unsupported(f"effort {effort!r} was left out: this endpoint takes none")

    def inference(self, capabilities: ModelCapabilities | None) -> dict[str, Any]:
        ctx = self._ctx
        made: dict[str, Any] = {
            "maxTokens": within(ctx.max_output_tokens or DEFAULT_CEILING, capabilities, notes=self.notes)
        }
        if ctx.temperature is not None:
            made["temperature"] = ctx.temperature
        if ctx.top_p is not None:
            made["topP"] = ctx.top_p
        stops = [text for text in ctx.stop if text]
        if stops:
            made["stopSequences"] = stops
        if ctx.seed is not None:
            self._unsupported(f"seed {ctx.seed} was left out: this API has none")
        return made

    def tools(self, thinks: bool) -> dict[str, Any]:
        """toolConfig, which must be there whenever the history holds calls or results; Converse, 2026-11."""
        ctx = self._ctx
        if "toolConfig" in ctx.options:
            return {}
        if ctx.tools and (ctx.tool_choice != "none" or self._used):
            specs = [_spec(each) for each in declared(ctx.tools, dialect=SCHEMAS, notes=self.notes)]
        else:
            specs = [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in self._used]
            if specs:
                self._note("tools: the history's own were declared, as this API asks", NoteCode.HISTORY_CHANGED)
        if ctx.tool_choice == "none" and specs:
            self._unsupported("tool_choice 'none' was left out: this API cannot forbid calls")
        if not ctx.parallel_tool_calls and ctx.tools:
            self._unsupported("parallel_tool_calls was left out: this API cannot forbid several calls")
        choice = self._choice(thinks)
        if not specs:
            return {}
        return {"toolConfig": {"tools": specs, **({"toolChoice": choice} if choice else {})}}

    def _choice(self, thinks: bool) -> dict[str, Any] | None:
        choice = self._ctx.tool_choice
        if choice in (None, "none"):
            return None
        names = [spec.name for spec in self._ctx.tools]
        if not names:
            if choice != "auto":
                self._unsupported(f"tool_choice {choice!r} was left out: there are no tools to choose from")
            return None
        if choice not in (*_CHOICES, *names):
            ways = ", ".join([*_CHOICES, "none", *names])
            raise InvalidRequestError(f"tool_choice: no tool is called {choice!r}; use one of {ways}")
        if thinks and choice != "auto":
            self._unsupported(
                f"tool_choice {choice!r} became auto: a call cannot be forced while thinking is on",
                NoteCode.PARAMETER_CHANGED,
            )
            choice = "auto"
        made = _CHOICES.get(str(choice))
        return {made: {}} if made else {"tool": {"name": legal_name(str(choice), dialect=SCHEMAS)}}

    def output(self) -> dict[str, Any]:
        form = self._ctx.output
        if form is None or form.response_format() is None:
            return {}
        made = normalise(form.json_schema(), SCHEMAS)
        if made.report.changes or made.report.problems:
            self._note(f"output: {made.report.summary()}")
        schema = {"name": form.name(), "schema": dumps(made.schema).decode()}
        return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


_CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any"}


def _spec(each: Declaration) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": each.name}
    if each.description:
        spec["description"] = each.description
    spec["inputSchema"] = {"json": dict(each.parameters)}
    if each.strict is not None:
        spec["strict"] = each.strict
    return {"toolSpec": spec}
