"""What makes the runs of an agent: what it is, what drives it, and who attends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import urandom
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace as changed

from isthmus.chain import of
from isthmus.harness.agenttool import AgentTool, RunContext
from isthmus.harness.beginning import Begun
from isthmus.harness.crew import Crew
from isthmus.harness.delegation import Busy, Lead, inheritable
from isthmus.harness.descriptor import AgentDescriptor, Runner
from isthmus.harness.errors import ApprovalError, JournalError
from isthmus.harness.handoffs import Handoff
from isthmus.harness.inputs import Item, messages_of
from isthmus.harness.journal import Journal
from isthmus.harness.limits import Limits
from isthmus.harness.loop import Next, start, taken_over
from isthmus.harness.loopstate import LoopState
from isthmus.harness.pending import Pending, pending_in
from isthmus.harness.plainjson import plain_json
from isthmus.harness.recovery import Comeback, begun_record, from_conversation, from_journal, rewound
from isthmus.harness.resume import Resume
from isthmus.harness.runevents import Mailbox
from isthmus.harness.runlog import RunLog
from isthmus.harness.runnerhooks import RunIdentity, RunnerHooks
from isthmus.harness.state import RunState
from isthmus.harness.view import LiveRunView
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.output import resolve_output_schema
from isthmus.models.promptspec import PromptSpec, render_instruction_text
from isthmus.models.tools import ToolExecutionContext, Tools

_RUNNER = Runner()
_LIMITS = Limits()
_OTHER_FORM = "the answer of the run had another form: give the agent the output that it had"


class Order(Struct, frozen=True, kw_only=True):
    """What one run is to do, and for whom.

    Args:
        items: what to answer.
        told: whether the caller brought the state, with instructions that come first.
        metadata: what tools and hooks find in their context.
        watched: whether somebody reads the run's events.
        parent: the run that this one works for.
        mailbox: where its events go; None makes one, if they are read.
        busy: how many agents work for the run at the root of it now; None begins to count.
        parent: the run that hands the work over.
        resume: which run is taken up, in place of a new one.
        kept: whether the agent keeps its conversation.
        apart: whether it runs beside the conversation, and commits nothing.
    """

    items: Sequence[Item]
    told: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    watched: bool = False
    parent: RunIdentity | None = None
    mailbox: Mailbox | None = None
    busy: Busy | None = None
    resume: Resume | None = None
    kept: bool = False
    apart: bool = False


class Recipe:
    """Makes the runs of an agent.

    Args:
        made: what the agent is.
        limits: what ends a run that does not end by itself.
        runner: how runs are driven.
        hooks: what is told of them.
        journal: where their steps are kept.

    Raises:
        InvalidRequestError: a tier of the model does not support tools, which there are, or has no room for them and
            the instructions; names it.
        OutputDefinitionError: no such form can be asked for.
    """

    def __init__(
        self,
        made: AgentDescriptor,
        *,
        limits: Limits | None,
        runner: Runner | None,
        hooks: Sequence[RunnerHooks],
        journal: Journal | None = None,
    ) -> None:
        self.made = made
        self.chain = of(made.model)
        self.tools = made.with_handoffs(made.policy)
        self.given, self._driven = limits, runner
        self._leads = any(isinstance(tool, AgentTool | Handoff) for tool in self.tools.normalized_tools)
        self.runner = _RUNNER if getattr(made.model, "handles_retries", False) or runner is None else runner
        self.limits = _limits(limits, runner).within(self.chain.budget)
        self.hooks = tuple(hooks)
        self.journal = journal
        # Agents mostly say the same, and a request takes longer to make than to compare.
        self._last = self._request = GenerateContext(
            max_output_tokens=made.max_output_tokens,
            output=resolve_output_schema(made.output),
            options=dict(made.model_args),
        )
        brief = made.instructions if isinstance(made.instructions, str) else ""
        offered = tuple(each for each in self.tools.tools if isinstance(each, ToolSpec))
        self.chain.check({"tools"} if offered else (), changed(self._request, brief=brief, tools=offered))

    @property
    def patience(self) -> Runner:
        """How many agents may work for a run, and how deep."""
        return self._driven or _RUNNER

    def begin(self, state: RunState, order: Order) -> Begun:
        """The first step of a run from a state, which becomes the run's own.

        Raises:
            ApprovalError: calls wait in the history, and this is not what they wait for.
            JournalError: a run cannot be taken up.
        """
        fresh = state.task_id is None
        back = self._comeback(state, order)
        own, brought = self.made.instructions, state.instructions
        instructions = brought if brought is not None and (order.told or not own) else own
        request = self._rendered(instructions, () if back is not None else (*state.history, *order.items))
        if back is None:
            messages = (*messages_of(state.history, "history"), *messages_of(order.items, "input"))
        else:
            messages = back.messages
            if back.brief is not None:
                request = _as_it_was(request, back.brief, back.form)
        state.instructions = request.brief
        state.task_id = state.task_id or urandom(16).hex()
        if back is None:
            begun = self._attended(state, order, request)
            begun.next = self._start(messages, request, begun.crew is not None, None)
        else:
            begun = self._again(state, order, request, back=back)
        if self.journal is not None:
            begun.log = self._log(
                self.journal, state, request, messages=messages, begun=begun, fresh=fresh, apart=order.apart
            )
        return begun

    def _again(self, state: RunState, order: Order, request: GenerateContext, *, back: Comeback) -> Begun:
        """Where the run stopped, as the agent that had the conversation then."""
        found = back.pending
        maker, asked = self, request
        if found is not None and found.via:
            maker = self.by(found.via)
            asked = maker.asking(back.over)
            back.over = {"brief": asked.brief, "form": _form(asked)}
        if found is not None and back.claims and _form(asked) != found.form:
            raise ApprovalError(_OTHER_FORM)
        back.watched = order.watched
        first = maker._start(back.messages, asked, maker.attends(order.watched), found)
        step = back.again(first, maker)
        begun: Begun = back.maker._attended(state, order, step[0].request)
        begun.next, begun.back = step, back
        back.first = None if back.maker is self else self
        return begun

    def by(self, handoffs: Sequence[str]) -> Recipe:
        """What makes the runs of the agent to which these handoffs lead, one after another.

        Raises:
            ApprovalError: there is no such handoff any more.
        """
        maker = self
        for name in handoffs:
            found = [each for each in maker.tools.normalized_tools if isinstance(each, Handoff) and each.name == name]
            if not found:
                raise ApprovalError(
                    f"the run had been handed over by {name!r}, and {maker.made.name!r} has no such handoff: "
                    "resume it with the agents that it had"
                )
            maker = maker.successor(found[0].agent)
        return maker

    def successor(self, agent: AgentDescriptor) -> Recipe:
        """What makes the runs of an agent that takes over from this one, without what shims would pass on."""
        return self.member(agent, inheritable(self.tools))

    def asking(self, was: Mapping[str, Any] | None) -> GenerateContext:
        """What the calls of a run have in common, as it was where that is known.

        Raises:
            JournalError: the answer had another form.
        """
        request = self._rendered(self.made.instructions, ())
        return request if was is None else _as_it_was(request, was["brief"], was["form"])

    def goes_on(self, stands: LoopState, was: Mapping[str, Any], *, watched: bool) -> Next:
        """The machine of a run that was another agent's, as a journal has it.

        Args:
            stands: where the run stands.
            was: the system text and the form that it went on with.
            watched: whether somebody reads the run's events.
        """
        return taken_over(stands, self._start((), self.asking(was), self.attends(watched), None)[0])

    def attends(self, watched: bool) -> bool:
        """Whether there is somebody who attends the runs, where their events are read or not."""
        return bool(watched or self.hooks or self.made.shims)

    def take_over(self, stands: LoopState, state: RunState, *, order: Order) -> Begun:
        """The next step of a run that was another agent's.

        Args:
            stands: where the run stands.
            state: the conversation that it began from, whose instructions stay those of the first agent.
            order: what the run is to do.
        """
        request = self._rendered(self.made.instructions, order.items)
        begun = self._attended(state, order, request)
        begun.next = taken_over(stands, self._start((), request, begun.crew is not None, None)[0])
        begun.about = {"brief": request.brief, "form": _form(request)}
        return begun

    def member(
        self, agent: AgentDescriptor, tools: Tools, *, limits: Limits | None = None, hooks: Sequence[RunnerHooks] = ()
    ) -> Recipe:
        """What makes the runs of another agent beside or after this one's.

        Args:
            agent: what it is; without a model it has this one's, and its arguments unless it has some.
            tools: those of this agent that it may have.
            limits: of its runs; None takes this agent's.
            hooks: what is told of them after this agent's hooks.
        """
        own, inherits = self.made, agent.model is None
        made = replace(
            agent,
            model=own.model if inherits else agent.model,
            model_args=agent.model_args or own.model_args if inherits else agent.model_args,
            tools=agent.tools_under(tools),
            shims=(*own.shims, *agent.shims) if agent.inherits_shims else agent.shims,
        )
        return Recipe(
            made,
            limits=limits or self.given,
            runner=self._driven,
            hooks=(*self.hooks, *(each for each in hooks if each not in self.hooks)),
        )

    def rewound(self, run_id: str, step: int | None) -> RunState:
        """The conversation as it stood in a run after so many replies."""

        def first(messages: Sequence[Mapping[str, Any]], found: Pending | None) -> tuple[Next, Recipe]:
            maker = self if found is None else self.by(found.via)
            return maker._start(messages, self._rendered("", ()), False, found), maker

        return rewound(self.journal, run_id, step=step, first=first)

    def _attended(self, state: RunState, order: Order, request: GenerateContext) -> Begun:
        """A run of this agent, and who attends it; where it begins is said later."""
        task_id, parent = state.task_id or "", order.parent
        view = LiveRunView(task_id, state.shim_state)
        attended = self.attends(order.watched)
        crew: Crew | None = None
        context = ToolExecutionContext(
            run_id=task_id, agent_name=self.made.name, metadata=order.metadata, run_state=view
        )
        lead: Lead | None = None
        if attended or self._leads:
            run = RunIdentity(
                agent=self.made.name,
                task_id=task_id,
                parent_task_id=None if parent is None else parent.task_id,
                depth=0 if parent is None else parent.depth + 1,
                metadata=order.metadata,
            )
            crew = self._crew(run, state, order, request) if attended else None
            lead = Lead(self, order, run=run, crew=crew, busy=order.busy or Busy())
            context = RunContext(
                run_id=task_id, agent_name=self.made.name, metadata=order.metadata, run_state=view, lead=lead
            )
        return Begun(None, context, crew, lead)

    def _start(
        self, messages: Sequence[Mapping[str, Any]], request: GenerateContext, staged: bool, pending: Pending | None
    ) -> Next:
        return start(
            messages,
            request,
            tools=self.tools,
            limits=self.limits,
            supports=self.chain.supports,
            staged=staged,
            pending=pending,
        )

    def _comeback(self, state: RunState, order: Order) -> Comeback | None:
        found = pending_in([item for item in state.history if isinstance(item, Mapping)])
        resume = order.resume
        if resume is None:
            if found is not None:
                names = ", ".join(f"{each.call_id!r} ({each.tool})" for each in found.requests)
                raise ApprovalError(
                    f"the calls {names} wait for a decision: resume the run with one for each, or reset"
                )
            return None
        if resume.run_id is None or (found is not None and found.run == resume.run_id):
            return from_conversation(resume, state, found=found)
        return from_journal(resume, state, journal=self.journal, agent=self.made.name, kept=order.kept)

    def _log(
        self,
        journal: Journal,
        state: RunState,
        request: GenerateContext,
        *,
        messages: Sequence[Mapping[str, Any]],
        begun: Begun,
        fresh: bool,
        apart: bool,
    ) -> RunLog | None:
        back, run_id = begun.back, state.task_id or ""
        if back is not None and not back.claims:
            opening = back.opening
            return None if opening is None else RunLog(journal, run_id, opening=opening, place=back.place)

        def opening_of_new() -> Mapping[str, Any]:
            return begun_record(
                state,
                agent=self.made.name,
                messages=(*messages, *(() if back is None else back.tail)),
                brief=request.brief,
                form=_form(request),
                apart=apart,
                decisions=() if back is None else back.given,
                over=None if back is None else back.over,
            )

        return RunLog(journal, run_id, opening=opening_of_new, place=0 if fresh and back is None else None)

    def _crew(self, run: RunIdentity, state: RunState, order: Order, request: GenerateContext) -> Crew:
        return Crew(
            run,
            self.hooks,
            shims=self.made.shims,
            tools=self.tools,
            request=request,
            state=state,
            mailbox=order.mailbox or Mailbox() if order.watched else None,
        )

    def _rendered(self, instructions: str | PromptSpec[Any], items: Sequence[Item]) -> GenerateContext:
        """What the calls of a run have in common: the instructions as they are now, and the form of the answer."""
        output = self._request.output
        if output is None:
            prompts = [item for item in (*reversed(items), instructions) if isinstance(item, PromptSpec)]
            # A form without a `response_format` is text, and leaves the choice to the next prompt.
            forms = [each.template.output_schema for each in prompts if each.template.response_format() is not None]
            output = forms[0] if forms else None
        brief = instructions if isinstance(instructions, str) else render_instruction_text(instructions)
        last = self._last
        if brief != last.brief or output is not last.output:
            self._last = last = changed(self._request, brief=brief, output=output)
        return last


def _as_it_was(request: GenerateContext, brief: str, form: Any) -> GenerateContext:
    request = changed(request, brief=brief)
    if _form(request) != form:
        raise JournalError(_OTHER_FORM)
    return request


def _form(request: GenerateContext) -> Any:
    return None if request.output is None else plain_json(request.output.response_format(), "form")


def _limits(limits: Limits | None, runner: Runner | None) -> Limits:
    limits = limits or _LIMITS
    return limits if runner is None else replace(limits, max_turns=min(limits.max_turns, runner.max_turns))
