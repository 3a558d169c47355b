"""State and traces of a run."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import pytest

from isthmus.models.run import DefaultRunContext, RunContext, TraceCtxManager, current_trace


async def test_a_run_context_is_a_mapping_over_its_dict() -> None:
    """It reads and writes the dict that it was given, or one of its own."""
    held = {"a": 1}
    context = DefaultRunContext(held)
    assert isinstance(context, MutableMapping)
    assert isinstance(context, RunContext)
    context["b"] = 2
    await context.set("c", 3)
    del context["a"]
    assert held == dict(context) == {"b": 2, "c": 3}
    assert context.context is held
    assert (len(context), "b" in context, context.get("z")) == (2, True, None)
    assert DefaultRunContext().context == {}
    assert "SECRET" not in repr(DefaultRunContext({"key": "SECRET"}))


async def test_the_atomic_changes() -> None:
    """Each starts from nothing and says what came of it."""
    context = DefaultRunContext()
    assert [await context.increment("n"), await context.increment("n"), await context.increment("m", 5)] == [1, 2, 6]
    await context.append_to_list("l", 1)
    await context.extend_list("l", iter([2, 3]))
    assert context["l"] == [1, 2, 3]
    assert [await context.append_if_unique("u", value) for value in (1, 1, 2)] == [True, False, True]
    by_id = [await context.append_if_unique("d", {"id": number}, lambda item: item["id"]) for number in (1, 2, 1)]
    assert (by_id, context["d"]) == ([True, True, False], [{"id": 1}, {"id": 2}])


def test_changes_from_many_threads_all_count() -> None:
    """Tasks of loops in several threads lose no change to each other."""
    context = DefaultRunContext()

    async def many() -> None:
        for number in range(500):
            await context.increment("n")
            await context.append_if_unique("u", number)

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (context["n"], len(context["u"])) == (2000, 500)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda context: context.increment("text"), "'text' holds str, no number: set it to one first"),
        (lambda context: context.append_to_list("text", 1), "'text' holds str, no list: set it to a list first"),
        (lambda context: context.extend_list("text", [1]), "'text' holds str, no list"),
        (lambda context: context.append_if_unique("text", 1), "'text' holds str, no list"),
    ],
)
async def test_a_value_of_another_kind_is_named(change: Any, said: str) -> None:
    """What stands there is left as it is."""
    context = DefaultRunContext({"text": "x"})
    with pytest.raises(TypeError, match=said):
        await change(context)
    assert context["text"] == "x"


def test_a_trace_is_started_where_none_is_current() -> None:
    """It is current inside the block and ended after it."""
    assert current_trace() is None
    with TraceCtxManager("work", "t1", group_id="g", metadata={"a": 1}) as manager:
        trace = manager.trace
        assert trace is current_trace()
        assert trace is not None
        assert (trace.workflow_name, trace.trace_id, trace.group_id, trace.metadata) == ("work", "t1", "g", {"a": 1})
        assert trace.ended is None
    assert current_trace() is None
    assert trace.ended is not None


def test_a_current_trace_is_kept_and_not_ended() -> None:
    """An inner block joins the outer trace, ends nothing, also when it fails, and entered twice is no matter."""
    with TraceCtxManager("outer") as outer:
        inner = TraceCtxManager("inner", "other")
        for _ in range(2):
            with suppress(KeyError), inner, inner:
                assert current_trace() is outer.trace
                raise KeyError
        assert outer.trace is not None
        assert outer.trace.ended is None


def test_a_disabled_trace_covers_what_begins_inside() -> None:
    """Nothing inside starts a trace that would be recorded."""
    with TraceCtxManager("work", disabled=True), TraceCtxManager("inner") as inner:
        assert inner.trace is not None
        assert inner.trace.disabled


async def test_tasks_have_traces_of_their_own() -> None:
    """Two tasks without a trace start one each; tasks inside of one share it."""

    async def work() -> Any:
        with TraceCtxManager("work") as manager:
            await asyncio.sleep(0)
            return manager.trace

    first, second = await asyncio.gather(work(), work())
    assert first.trace_id != second.trace_id
    with TraceCtxManager("outer") as outer:
        assert set(map(id, await asyncio.gather(work(), work()))) == {id(outer.trace)}


def test_a_block_left_in_another_context_ends_its_trace() -> None:
    """A generator that is closed elsewhere leaves no current trace behind."""
    manager = TraceCtxManager("work")
    context = contextvars.copy_context()
    context.run(manager.__enter__)
    assert context.run(current_trace) is not None
    manager.__exit__(None, None, None)
    assert context.run(current_trace) is None


async def test_tasks_may_share_one_manager() -> None:
    """Each task that enters a shared manager has a trace of its own, which no other task's exit ends."""
    manager = TraceCtxManager("work")
    gate = [asyncio.Event() for _ in range(4)]

    async def work(number: int) -> tuple[Any, Any]:
        with manager as entered:
            begun = entered.trace
            # The first to come is the first to go, while all the others still work.
            await gate[number].wait()
            return begun, current_trace()

    tasks = [asyncio.ensure_future(work(number)) for number in range(4)]
    traces = []
    for number, task in enumerate(tasks):
        await asyncio.sleep(0)
        gate[number].set()
        begun, current = await task
        assert begun is current
        traces.append(begun)
    assert len({trace.trace_id for trace in traces}) == 4
    assert all(trace.ended is not None for trace in traces)
    assert current_trace() is None


async def test_a_child_task_leaves_its_parents_trace_running() -> None:
    """A task that enters the manager inside its parent's block finds that trace, and does not end it."""
    manager = TraceCtxManager("work")

    async def child() -> Any:
        with manager as entered:
            return entered.trace

    with manager as entered:
        assert await asyncio.ensure_future(child()) is entered.trace
        assert current_trace() is entered.trace
    assert current_trace() is None
