"""The chain: tries its tiers in order until one answers, and never says anything twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from isthmus.adapters.base import is_heard, observed, timeouts_of
from isthmus.chain.asking import asked, later
from isthmus.chain.budget import Account, Budget, Spending
from isthmus.chain.call import ChainCall
from isthmus.chain.context import ContextPolicy
from isthmus.chain.ledger import Attempt, Run
from isthmus.chain.seams import Drain
from isthmus.chain.settling import settle, soon
from isthmus.chain.setup import Setup, require
from isthmus.chain.tier import Member
from isthmus.errors import InvalidRequestError, ProtocolError, TierError
from isthmus.models.batches import Batches, texts_of
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import CallDelta, Event, StepResult, Text
from isthmus.models.fold import classify, close, uninvited
from isthmus.models.steering import Steerable, SteeringInput, SteeringReceipt
from isthmus.models.stream import EventStream
from isthmus.models.watchdog import UNTIMED, Watchdog
from isthmus.observability.scope import under

_TIMEOUTS = Timeouts()


class Chain:
    """An adapter made of tiers that are tried in order; made by `define_chain` or `of`.

    A failure before any content is tried again or falls back, by its class; one after content ends the reply with
    "error-post". Chains nest.
    """

    __slots__ = ("_account", "_run", "_setup")

    handles_retries = True

    def __init__(self, setup: Setup, run: Run | None = None, *, account: Account | None = None) -> None:
        self._setup = setup
        self._run = run
        self._account = account

    @property
    def id(self) -> str:
        """The chain's name."""
        return self._setup.id

    @property
    def tiers(self) -> tuple[Any, ...]:
        """The tiers as they were given."""
        return tuple(member.adapter for member in self._setup.members)

    @property
    def members(self) -> tuple[Member, ...]:
        """The tiers with what is known of each."""
        return self._setup.members

    @property
    def window_tokens(self) -> int | None:
        """The smallest window of its tiers, in tokens; None where none is known."""
        return min((m.window_tokens for m in self._setup.members if m.window_tokens is not None), default=None)

    @property
    def max_output_tokens(self) -> int | None:
        """The lowest output ceiling of its tiers, in tokens; None where none is known."""
        return min((m.max_output_tokens for m in self._setup.members if m.max_output_tokens is not None), default=None)

    @property
    def supports(self) -> frozenset[str]:
        """What all of its tiers can do."""
        return self._setup.supports

    @property
    def served(self) -> str | None:
        """Within a run: the id of the tier that answered last."""
        return None if self._run is None else self._run.served

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Within a run: every try so far, in order."""
        return () if self._run is None else tuple(self._run.attempts)

    @property
    def tries(self) -> int:
        """Within a run: how many tries there were so far."""
        return 0 if self._run is None else len(self._run.attempts)

    @property
    def budget(self) -> Budget | None:
        """What a run may spend."""
        return self._setup.budget

    @property
    def spent(self) -> Spending | None:
        """Within a run that has a budget: what was spent so far."""
        account = None if self._run is None else self._run.account
        return None if account is None else account.spent

    def __repr__(self) -> str:
        return f"Chain(id={self.id!r}, tiers={[member.id for member in self._setup.members]!r})"

    def check(self, needs: Iterable[str], request: GenerateContext | None = None) -> None:
        """See to it, before any call, that every tier can do what is needed.

        Args:
            needs: words as in `supports`, e.g. {"tools"}.
            request: what all requests have in common: instructions, tools, output ceiling. It must fit every window
                that is known, by an estimate.

        Raises:
            InvalidRequestError: a tier cannot; names each tier and what it lacks.
        """
        setup = self._setup
        require(self.id, setup.members, wanted=frozenset(needs))
        gaps = [] if request is None else list(_too_small(setup, request))
        if gaps:
            remedy = "say less, lower max_output_tokens, or use a tier with a larger window"
            raise InvalidRequestError(f"chain {self.id!r}: {'; '.join(gaps)}: {remedy}", code="window")

    def stream(self, ctx: GenerateContext) -> EventStream:
        """The reply's events as they arrive, from the first tier that has any.

        Raises:
            ChainExhausted: while iterating: no tier answered.
            InvalidRequestError: while iterating: the request is wrong, or asks for what a tier cannot do.
            RefusedError: while iterating: refused by content policy, unless `fallback_on_refused`.
        """
        watch = Watchdog(UNTIMED)
        return EventStream(self._events(ctx, watch), watch)

    async def generate(self, ctx: GenerateContext) -> StepResult:
        """The reply whole: its stream, collected.

        Raises:
            ChainExhausted: no tier answered.
            InvalidRequestError: the request is wrong, or asks for what a tier cannot do.
            RefusedError: refused by content policy, unless `fallback_on_refused`.
        """
        return await self.stream(ctx).result()

    def _events(self, ctx: GenerateContext, watch: Watchdog, outer: ChainCall | None = None) -> Batches:
        run = self._begun() if self._run is None else self._run
        call = ChainCall(self._setup, run, ctx=ctx, outer=outer)
        if outer is not None:
            outer.trying.inner = call
        return Batches(_drive(call, watch))

    def _begun(self, *, scoped: bool = False) -> Run:
        setup = self._setup
        if setup.budget is None or self._account is not None:
            return Run(scoped=scoped, account=self._account)
        return Run(scoped=scoped, account=Account(setup.budget, setup.prices, began=setup.clock.now()))

    def open_run(self) -> AbstractAsyncContextManager[Chain]:
        """A copy of the chain that remembers within one run: which tier served, every try, and what was spent.

        After a fallback, later calls begin with the tier that served. The budget is the run's: without a run each call
        has it for itself. Of a copy that is in a run already, this is the same copy.
        """
        return _InRun(self)

    async def steer(self, steering: SteeringInput) -> SteeringReceipt:
        """Within a run: send input into the reply of the tier at work.

        Raises:
            RuntimeError: no tier is at work, or it has no reply under way.
            NotImplementedError: it cannot be steered.
        """
        active = None if self._run is None else self._run.active
        if not isinstance(active, Steerable):
            raise RuntimeError("This run has no active steering channel.")
        return await active.steer(steering)

    def beside(self) -> Chain:
        """The chain for runs beside this copy's: each remembers for itself, and spends what this one has left."""
        return Chain(self._setup, account=None if self._run is None else self._run.account)

    async def aclose(self) -> None:
        """Close its tiers; a run's copy closes only what the run opened."""
        if self._run is not None:
            await self._run.aclose()
            return
        for member in self._setup.members:
            await close(member.adapter)

    async def __aenter__(self) -> Chain:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _InRun:
    """A run of a chain as a block; no generator, which would be dearer to begin than all that is done here."""

    __slots__ = ("_chain", "_run")

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._run: Run | None = None

    async def __aenter__(self) -> Chain:
        chain = self._chain
        if chain._run is not None:
            return chain
        self._run = chain._begun(scoped=True)
        return Chain(chain._setup, self._run)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            await self._run.aclose()


def _too_small(setup: Setup, request: GenerateContext) -> Iterator[str]:
    """The tiers that have no room for what no request can do without."""
    for each in setup.members:
        if isinstance(each.adapter, Chain):
            yield from _too_small(each.adapter._setup, request)
        elif isinstance(setup.context, ContextPolicy):
            short = setup.context.shortfall(request, each)
            if short is not None:
                tokens, room = short
                yield f"instructions and tools take about {tokens} tokens, and tier {each.id!r} has room for {room}"


async def _drive(call: ChainCall, watch: Watchdog) -> AsyncGenerator[Sequence[Event], None]:
    call.begin()
    drain, measured = call.drain, bool(call.accounts)
    try:
        while True:
            if call.due and (due := _drained(call.said(), drain)):
                yield due
            if call.over or not await call.ready(watch):
                return
            if call.due:
                yield call.said()
            inner: Any = None
            fresh = True
            try:
                adapter = call.member.adapter
                watch.restart(call.setup.timeouts or timeouts_of(adapter) or _TIMEOUTS, call.left())
                # The run has no name here: it keeps errors, whose frames lead back to this one.
                opens = call.run.scoped and call.member.opens_runs
                call.run.active = await call.run.target(call.index, adapter) if opens else adapter
                inner = _opened(call, watch)
                batched = isinstance(inner, Batches)
                inner = inner.batches if batched else inner
                async for item in inner:
                    batch = item if batched else (item,)
                    texts = texts_of(batch)
                    if texts is not None and (drain is None or drain.passes(batch, texts)):
                        if fresh and any(texts):
                            fresh = False
                            call.commit()
                        if measured:
                            call.trying.written += sum(map(len, texts))
                        yield batch
                        continue
                    taken, wrong = _taken(call, batch, drain, watch=watch)
                    if taken:
                        yield taken
                    if wrong is not None:
                        raise wrong
                    if call.over:
                        break
                else:
                    raise ProtocolError(f"tier {call.member.id!r}: the stream ended without a finish")
                ended = await settle(inner, call.member.id, watch=watch, batched=batched)
                left, inner = inner, None
                if not ended:
                    await soon(close(left), watch)
            except asyncio.CancelledError as error:
                late = watch.overdue() or uninvited(error)
                if late is None:
                    raise
                _failed(call, error, late)
            except Exception as error:
                _failed(call, error, watch.overdue())
            finally:
                if inner is not None:
                    await close(inner)
    finally:
        call.leave()
        # The frames of errors that the ledger keeps lead back to this one.
        del call, drain


def _drained(events: Iterable[Event], drain: Drain | None) -> list[Event]:
    return list(events) if drain is None else [shown for event in events for shown in drain.take(event)]


def _taken(
    call: ChainCall, batch: Iterable[Any], drain: Drain | None, *, watch: Watchdog
) -> tuple[list[Event], Exception | None]:
    """What a chain shows of the events that came together, up to its end or to what is wrong with one."""
    shown: list[Event] = []
    trying = call.trying
    try:
        for event in batch:
            if type(event) is Text and type(event.text) is str:
                if event.text:
                    call.commit()
                trying.written += len(event.text)
            elif type(event) is CallDelta:
                # The many pieces of a call's arguments: a fold keeps none of them.
                trying.shown = True
            else:
                event = call.take(event)
            if drain is None:
                shown.append(event)
            else:
                shown += drain.take(event)
            if call.over:
                break
    except Exception as error:
        return shown, error
    if not shown:
        watch.heard()
    return shown, None


def _without_ours(error: BaseException) -> BaseException:
    # The ledger keeps the error, and our frame the ledger: all of it would wait for a garbage collection.
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    return error


def _failed(call: ChainCall, error: BaseException, late: TierError | None) -> None:
    if not call.over:
        call.trying.stopped = late is not None
        call.fail(late or classify(_without_ours(error)))


def _opened(call: ChainCall, watch: Watchdog) -> AsyncIterator[Any]:
    """A try that begins: one bare iterator, whatever the tier returns."""
    target, ctx = call.run.active, call.trying.ctx
    if call.teller.attempt is None:
        return _reached(target, ctx, watch=watch, call=call)
    with under(call.teller.attempt):
        if isinstance(target, Chain) or is_heard(target):
            return _reached(target, ctx, watch=watch, call=call)
        begun: AsyncIterator[Any] = observed(later(target, ctx), target, ctx=ctx)
        return begun


def _reached(target: Any, ctx: GenerateContext, *, watch: Watchdog, call: ChainCall) -> AsyncIterator[Any]:
    # A chain restarts the watchdog for each of its own tries.
    return target._events(ctx, watch, call) if isinstance(target, Chain) else asked(target, ctx)
