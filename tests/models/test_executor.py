"""Running the calls of a reply: every fault becomes an answer that the model can read."""

import asyncio
import threading
from contextlib import aclosing
from time import monotonic
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator

from isthmus.models.cancellation import CancellationToken
from isthmus.models.contract import ToolSpec
from isthmus.models.events import Call
from isthmus.models.executor import ToolExecutor, ToolResult
from isthmus.models.media import Media
from isthmus.models.normalise import make_call
from isthmus.models.parts import ImageContent
from isthmus.models.responses import ToolCall, ToolCallFunction
from isthmus.models.results import ToolError, ToolFailure
from isthmus.models.tools import Tool, ToolExecutionContext, Tools
from support.turns import call, tasks


def double(n: int) -> int:
    """Double it."""
    return 2 * n


async def later(n: int) -> int:
    """Give it back."""
    return n


async def run(tools: Any, *calls: Call, **options: Any) -> list[ToolResult]:
    """Execute calls with tools, a policy or a list."""
    policy = tools if isinstance(tools, Tools) else Tools(tools)
    async with aclosing(ToolExecutor().results(calls, tools=policy, **options)) as results:
        return [result async for result in results]


async def test_results_answer_calls_by_id_in_order() -> None:
    """Each call gets one result, by its id, in the order of the calls."""
    results = await run([double, later], call("later", "b", n=1), call("double", "a", n=2))
    assert [(r.call_id, r.tool, r.content, r.outcome) for r in results] == [
        ("b", "later", "1", "ok"),
        ("a", "double", "4", "ok"),
    ]


async def test_an_unknown_tool_is_answered_with_the_names_on_offer() -> None:
    """F07: a call of a tool that is not there is answered, and the answer lists those that are."""
    (result,) = await run([double, later], call("dubble", n=1))
    assert result.outcome == "unknown-tool"
    assert "'dubble'" in result.content
    assert "double, later" in result.content


async def test_a_tool_without_a_handler_is_not_run() -> None:
    """A bare declaration can be offered but not run; the model is told."""
    (result,) = await run([ToolSpec(name="remote")], call("remote"))
    assert (result.outcome, result.ran) == ("unknown-tool", False)


@pytest.mark.parametrize("text", ['{"n": ', '{"n": 1,}', "[1]", '"x"', "3"])
async def test_arguments_that_are_no_object_are_not_executed(text: str) -> None:
    """F15: arguments that are cut, broken or no JSON object are answered with why, and the handler is not called."""
    ran: list[int] = []

    def never(n: int = 0) -> None:
        """Never."""
        ran.append(n)

    (result,) = await run([never], make_call("never", text, call_id="c1"))
    assert (result.outcome, ran) == ("invalid-arguments", [])
    told = "Invalid arguments for never. Please call never with the required parameters. It was not run: arguments are"
    assert str(result.content).startswith(told)
    assert str(result.content).endswith("; give a JSON object.")


@pytest.mark.parametrize("text", ["", "  ", "null", "{}", None])
async def test_empty_arguments_are_no_arguments(text: str | None) -> None:
    """F15: empty, blank, null and absent arguments call the tool without any."""
    (result,) = await run([Tool(name="t", handler=lambda args: args)], make_call("t", text, call_id="c1"))
    assert (result.content, result.outcome) == ("{}", "ok")


async def test_validation_says_what_to_fix() -> None:
    """F15: each fault names the argument, the rule, and the value that was given."""

    def book(name: str, seats: int) -> None:
        """Book."""

    (result,) = await run([book], call("book", seats="many", date="today"))
    assert result.outcome == "invalid-arguments"
    assert "name: it is required" in result.content
    assert "seats: Input should be a valid integer" in result.content
    assert '"many"' in result.content
    assert "date" in result.content


async def test_an_explicit_schema_is_checked_too() -> None:
    """Without a model class, arguments are checked against the schema that the model was told."""
    schema = {
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast", "slow"]},
            "ids": {"type": "array", "items": {"type": "integer"}},
            "to": {"type": "object", "required": ["host"], "properties": {"host": {"type": ["string", "null"]}}},
        },
        "required": ["mode"],
        "additionalProperties": False,
    }
    tool = Tool(name="t", parameters_schema=schema, handler=lambda args: args)
    (bad,) = await run([tool], call("t", ids=[1, "2", True], to={}, extra=1))
    for part in ("mode: it is required", "ids[1]: must be integer", "ids[2]", "to.host: it is", "extra: there is no"):
        assert part in bad.content
    (good,) = await run([tool], call("t", mode="fast", ids=[1, 2.0], to={"host": None}))
    assert good.outcome == "ok"
    (wrong,) = await run([tool], call("t", mode="medium"))
    assert 'mode: must be one of ["fast","slow"]' in wrong.content


@pytest.mark.parametrize("number", [2512292042121000001, -(2**53) - 1, 10**40])
async def test_numbers_of_any_size_are_exact(number: int) -> None:
    """F30: an integer reaches the handler and comes back digit for digit, as JSON integer or as digits in a string."""
    for text in (f'{{"n": {number}}}', f'{{"n": "{number}"}}'):
        (result,) = await run([later], make_call("later", text, call_id="c1"))
        assert result.content == str(number)


async def test_a_raising_handler_is_answered() -> None:
    """A failure of a tool is a result with type and message, and shows no key."""

    async def burn(n: int) -> None:
        """Burn."""
        raise ValueError("no matches for sk-abcdef123456789")

    results = await run([burn, double], call("burn", "a", n=1), call("double", "b", n=1))
    assert results[0].content == "Error: Tool 'burn' failed: ValueError: no matches for ***"
    assert [r.outcome for r in results] == ["error", "ok"]


async def test_a_formatter_that_raises_is_answered() -> None:
    """What goes wrong in making the text is the tool's failure too."""
    tool = Tool(name="t", handler=lambda args: 1, formatter=lambda value: value.nothing)
    (result,) = await run([tool], call("t"))
    assert result.outcome == "error"


async def test_plain_handlers_run_in_threads_of_their_own() -> None:
    """A plain function does not block the loop, and sees the context variables of the caller."""
    loop_thread = threading.get_ident()
    release = threading.Event()

    def wait(n: int) -> bool:
        """Wait."""
        return release.wait(10) and threading.get_ident() != loop_thread

    task = asyncio.ensure_future(run([wait], call("wait", n=1)))
    await asyncio.sleep(0)
    release.set()
    assert (await task)[0].content == "true"


async def test_a_wrapper_around_an_async_handler_is_awaited() -> None:
    """A plain function that returns a coroutine has it awaited."""
    tool = Tool.from_function(later).with_handler(lambda old: lambda args: old(args))
    (result,) = await run([tool], call("later", n=4))
    assert result.content == "4"


async def test_an_async_tool_that_times_out_is_tried_again() -> None:
    """`tool_call_max_retries` 3 makes four attempts, each one stopped; then the model is told."""
    begun, stopped = 0, 0

    async def hang(n: int) -> None:
        """Hang."""
        nonlocal begun, stopped
        begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            stopped += 1

    (result,) = await run(Tools([hang], tool_call_timeout=0.01), call("hang", n=1))
    assert (result.outcome, begun, stopped) == ("timeout", 4, 4)
    assert str(result.content).startswith("Error: Tool 'hang' timed out after 0.01s (4 attempts). It was stopped")


async def test_retry_on_timeout_can_be_refused() -> None:
    """A tool with `retry_on_timeout=False` is tried once."""
    begun = 0

    async def hang(args: Any) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    tool = Tool(name="hang", handler=hang, retry_on_timeout=False)
    (result,) = await run(Tools([tool], tool_call_timeout=0.01), call("hang"))
    assert (result.outcome, begun) == ("timeout", 1)


async def test_a_plain_tool_that_times_out_is_left_behind() -> None:
    """F10: nobody waits for a thread that takes too long: it is told, not tried again, and its outcome is unknown."""
    release, done = threading.Event(), threading.Event()
    told: list[bool] = []

    def slow(cancellation_token: CancellationToken) -> None:
        """Slow."""
        release.wait(10)
        told.append(cancellation_token.cancelled)
        done.set()

    (result,) = await run(Tools([slow], tool_call_timeout=0.01), call("slow"))
    assert result.outcome == "timeout"
    assert str(result.content).startswith("Error: Tool 'slow' timed out after 0.01s (1 attempts). It may still be")
    assert str(result.content).endswith("its outcome is unknown.")
    release.set()
    assert done.wait(10)
    assert told == [True]


async def test_a_handlers_own_timeout_is_its_own_failure() -> None:
    """A `TimeoutError` that the handler raises is an error of the tool, not tried again."""
    begun = 0

    async def fetch(args: Any) -> None:
        nonlocal begun
        begun += 1
        raise TimeoutError("the database")

    (result,) = await run(Tools([Tool(name="fetch", handler=fetch)], tool_call_timeout=5), call("fetch"))
    assert (result.outcome, begun) == ("error", 1)
    assert "the database" in result.content


async def test_calls_run_side_by_side_only_if_allowed() -> None:
    """Without `parallel_tool_calls` one call ends before the next begins; with it they meet."""
    order: list[str] = []

    async def step(name: str) -> None:
        """Step."""
        order.append(f"+{name}")
        await asyncio.sleep(0)
        order.append(f"-{name}")

    calls = (call("step", "1", name="a"), call("step", "2", name="b"))
    await run([step], *calls)
    assert order == ["+a", "-a", "+b", "-b"]
    order.clear()
    results = await run(Tools([step], parallel_tool_calls=True), *calls)
    assert order == ["+a", "+b", "-a", "-b"]
    assert [r.call_id for r in results] == ["1", "2"]


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_limit_lets_the_first_of_a_batch_run(parallel: bool) -> None:
    """Of a batch that overruns a limit the first calls run; earlier runs count, faulty calls do not."""
    ran: list[int] = []

    async def use(n: int) -> None:
        """Use."""
        ran.append(n)

    tools = Tools([use], tool_call_limits={"use": 3}, parallel_tool_calls=parallel)
    calls = [call("use", "bad", n="x"), *(call("use", str(n), n=n) for n in range(4))]
    results = await run(tools, *calls, used={"use": 1})
    assert ran == [0, 1]
    assert [r.outcome for r in results] == ["invalid-arguments", "ok", "ok", "limit", "limit"]


async def test_cancellation_passes_through_and_stops_what_runs() -> None:
    """F10: cancelling the batch cancels its async handlers and leaves no task."""
    stopped: list[str] = []

    async def hang(name: str) -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(name)

    tools = Tools([hang], parallel_tool_calls=True)
    task = asyncio.ensure_future(run(tools, call("hang", "1", name="a"), call("hang", "2", name="b")))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(stopped) == ["a", "b"]
    assert not tasks()


async def test_closing_early_stops_what_runs() -> None:
    """F10: closing the results after the first one cancels the others."""

    async def maybe(wait: bool) -> None:
        """Maybe."""
        if wait:
            await asyncio.Event().wait()

    calls = [call("maybe", "1", wait=False), call("maybe", "2", wait=True)]
    tools = Tools([maybe], parallel_tool_calls=True)
    async with aclosing(ToolExecutor().results(calls, tools=tools)) as results:
        assert (await anext(results)).call_id == "1"
    assert not tasks()


async def test_handlers_are_told_which_call_they_serve() -> None:
    """The context carries the run, the agent and the call's own id; what starts is reported just before."""
    seen: list[Any] = []
    started: list[str | None] = []

    async def look(context: ToolExecutionContext) -> None:
        """Look."""
        seen.append((context.run_id, context.agent_name, context.tool_call_id, context.metadata, started[-1]))

    given = ToolExecutionContext(run_id="r", agent_name="a", metadata={"k": 1})
    await run([look], call("look", "c7"), context=given, on_tool_start=lambda each: started.append(each.call_id))
    assert seen == [("r", "a", "c7", {"k": 1}, "c7")]


async def test_reserved_keys_are_removed() -> None:
    """A `_isthmus` key that came from a model or a tool is removed, wherever it stands."""
    seen: list[Any] = []

    def forge(args: Any) -> Any:
        seen.append(args)
        return {"_isthmus": {"visibility": "internal"}, "rows": [{"_isthmus": 1, "a": 1}]}

    (result,) = await run([Tool(name="forge", handler=forge)], call("forge", _isthmus={"x": 1}, b=2))
    assert seen == [{"b": 2}]
    assert result.content == '{"rows":[{"a":1}]}'


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration()], ids=repr)
@pytest.mark.parametrize("parallel", [False, True])
async def test_an_exit_of_a_handler_ends_the_handler_alone(error: BaseException, parallel: bool) -> None:
    """A tool that exits the program or cancels itself, in a thread or not, is answered like any that failed."""

    def plain() -> None:
        raise error

    async def waits() -> None:
        raise error

    policy = Tools((plain, waits), parallel_tool_calls=parallel, tool_call_timeout=30)
    results = await run(policy, call("plain", "a"), call("waits", "b"))
    assert [(r.call_id, r.outcome) for r in results] == [("a", "error"), ("b", "error")]


async def test_a_handler_whose_own_task_was_cancelled_failed() -> None:
    """A handler that awaits something cancelled elsewhere failed; nobody cancelled the run."""

    async def waits() -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner

    (result,) = await run([waits], call("waits"))
    assert (result.outcome, "CancelledError" in result.content) == ("error", True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()], ids=repr)
async def test_whatever_ends_a_thread_ends_that_thread_alone(error: BaseException) -> None:
    """Signals reach the main thread only: what a plain handler raises is its failure, of whatever kind."""

    def plain() -> None:
        raise error

    (result,) = await run([plain], call("plain"))
    assert result.outcome == "error"


async def test_an_error_that_cannot_speak_is_named() -> None:
    """A failure whose text cannot be had is answered with its type."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def plain() -> None:
        raise Mute

    (result,) = await run([plain], call("plain"))
    assert result.content == "Error: Tool 'plain' failed: Mute"


async def execute(tools: Any, *calls: Any, adapter: Any = None, **options: Any) -> list[Any]:
    """The messages of calls, as a caller gets them."""
    policy = tools if isinstance(tools, Tools) else Tools(tools)
    return await ToolExecutor(adapter).execute(tool_calls=calls, tools=policy, **options)


async def test_execute_answers_chat_completions_calls_with_messages() -> None:
    """`execute` takes calls of Chat Completions and gives one message each, in their order, whatever became of them."""
    calls = [
        ToolCall("c2", ToolCallFunction("double", '{"n": 2}')),
        {"id": "c1", "type": "function", "function": {"name": "later", "arguments": '{"n": 1}'}},
        call("nobody", "c3"),
    ]
    messages = await execute(Tools([double, later], parallel_tool_calls=True), *calls)
    assert messages[:2] == [
        {"tool_call_id": "c2", "role": "tool", "name": "double", "content": "4"},
        {"tool_call_id": "c1", "role": "tool", "name": "later", "content": "1"},
    ]
    assert messages[2]["content"].startswith("Error: Tool 'nobody' is not registered.")


async def test_another_adapter_makes_other_messages() -> None:
    """An adapter of one's own has `format_success` for what went well and `format_error` for all else."""

    class Adapter:
        def format_success(self, call_id: str, tool_name: str, content: Any) -> dict[str, Any]:
            return {"good": (call_id, tool_name, content)}

        def format_error(self, call_id: str, tool_name: str, error_message: Any) -> dict[str, Any]:
            return {"bad": (call_id, tool_name, error_message.split(":")[0])}

    messages = await execute([double], call("double", "a", n=1), call("double", "b"), adapter=Adapter())
    assert messages == [{"good": ("a", "double", "2")}, {"bad": ("b", "double", "Invalid arguments for double")}]


def _burn() -> None:
    raise ValueError("hot")


async def _hang() -> None:
    await asyncio.Event().wait()


_TABLE: list[tuple[str, Any, str, str, str | None]] = [
    ("unknown", None, "unknown-tool", "Error: Tool 'unknown' is not registered. Use one of: burn, hang, says.", None),
    (
        "burn",
        "{",
        "invalid-arguments",
        "Invalid arguments for burn. Please call burn with the required parameters. It was not run: arguments are",
        None,
    ),
    ("burn", '{"x": 1}', "invalid-arguments", "Invalid arguments for burn: x: ", None),
    ("burn", "{}", "error", "Error: Tool 'burn' failed: ValueError: hot", "error"),
    ("hang", "{}", "timeout", "Error: Tool 'hang' timed out after 0.01s (2 attempts). It was stopped; its", "timeout"),
    ("says", "{}", "error", "exit status 1", "nonzero_exit"),
]


@pytest.mark.parametrize(("tool", "arguments", "outcome", "text", "kind"), _TABLE, ids=[row[3][:30] for row in _TABLE])
async def test_what_goes_back_when_a_call_goes_wrong(
    tool: str, arguments: Any, outcome: str, text: str, kind: str | None
) -> None:
    """Each way to fail has its outcome and its words; where the handler ran, the end is told with a `ToolFailure`."""

    def says() -> ToolFailure:
        return ToolFailure(text="exit status 1", error=ToolError("grep", "nonzero_exit"))

    told: list[Any] = []
    offered = [Tool.from_function(_burn, name="burn"), Tool.from_function(_hang, name="hang"), says]
    tools = Tools(offered, tool_call_timeout=0.01 if tool == "hang" else None, tool_call_max_retries=1)
    made = make_call(tool, arguments, call_id="c1")
    (result,) = await run(tools, made, on_tool_start=told.append, on_tool_end=lambda *end: told.append(end))
    assert (result.outcome, str(result.content)[: len(text)]) == (outcome, text)
    if outcome == "invalid-arguments" and arguments != "{":
        assert str(result.content).endswith("Please retry with valid parameters.")
    if kind is None:
        assert told == []
    else:
        assert told == [made, (made, result.content)]
        assert isinstance(told[1][1], ToolFailure)
        assert told[1][1].error.kind == kind


@pytest.mark.parametrize("parallel", [False, True])
async def test_callbacks_are_told_of_each_call_as_it_was_given(parallel: bool) -> None:
    """Callbacks, sync or async, hear of the caller's own call: at the start, and at the end with what came back."""
    told: list[Any] = []

    async def start(given: Any) -> None:
        await asyncio.sleep(0)
        told.append(("start", given["id"]))

    def end(given: Any, result: Any) -> None:
        told.append(("end", given["id"], result))

    calls = [{"id": each, "function": {"name": "later", "arguments": '{"n": 7}'}} for each in ("a", "b")]
    await execute(Tools([later], parallel_tool_calls=parallel), *calls, on_tool_start=start, on_tool_end=end)
    ordered = [("start", "a"), ("end", "a", 7), ("start", "b"), ("end", "b", 7)]
    assert told == ordered if not parallel else sorted(told) == sorted(ordered)


async def test_a_callback_that_raises_is_the_callers_own_failure() -> None:
    """An error of a callback reaches the caller, and nothing runs on."""

    def start(given: Any) -> None:
        raise LookupError(given.call_id)

    tools = Tools([later], parallel_tool_calls=True)
    with pytest.raises(LookupError, match="a"):
        await execute(tools, call("later", "a", n=1), call("later", "b", n=1), on_tool_start=start)
    assert not tasks()


async def test_contexts_come_by_call_id() -> None:
    """A mapping gives each call its own context; a call without one gets its id alone."""
    seen: list[ToolExecutionContext] = []

    def look(context: ToolExecutionContext) -> None:
        seen.append(context)

    given = ToolExecutionContext(run_id="r", tool_call_id="a", metadata={"k": 1})
    await execute([look], call("look", "a"), call("look", "b"), context={"a": given})
    assert seen == [given, ToolExecutionContext(tool_call_id="b")]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_callers_token_stops_what_runs_within_50_ms(parallel: bool, plain: bool) -> None:
    """F10: cancelling the token, in any thread, ends running tools at once; handlers see it, all calls are answered."""
    # A busy machine may be late once, a wait that is built in is late each time.
    assert min([await _cancelled(parallel=parallel, plain=plain) for _ in range(3)]) < 0.05


async def _cancelled(*, parallel: bool, plain: bool) -> float:
    started, release = threading.Event(), threading.Event()
    tokens: list[CancellationToken] = []
    ends: list[Any] = []

    def slow(cancellation_token: CancellationToken) -> None:
        tokens.append(cancellation_token)
        started.set()
        release.wait(10)

    async def waits(cancellation_token: CancellationToken) -> None:
        tokens.append(cancellation_token)
        started.set()
        await asyncio.Event().wait()

    token, cancelled = CancellationToken(), 0.0

    def cancel() -> None:
        nonlocal cancelled
        started.wait(10)
        cancelled = monotonic()
        token.cancel()

    threading.Thread(target=cancel).start()
    tools = Tools([Tool.from_function(slow if plain else waits, name="t")], parallel_tool_calls=parallel)
    results = await run(
        tools, call("t", "a"), call("t", "b"), cancellation_token=token, on_tool_end=lambda *end: ends.append(end)
    )
    took = monotonic() - cancelled
    release.set()
    assert results[0].outcome == "cancelled"
    assert str(results[0].content).startswith("Error: Tool 't' was cancelled.")
    assert results[1].outcome in (("cancelled", "not-executed") if parallel else ("not-executed",))
    assert all(each.cancelled for each in tokens)
    assert {end[1].error.kind for end in ends} == {"cancelled"}
    assert not tasks()
    return took


async def test_a_cancelled_token_runs_nothing() -> None:
    """With a token that is cancelled already no handler is called, and each call is answered so."""
    token, told = CancellationToken(), list[Any]()
    token.cancel()
    (result,) = await run([double], call("double", n=1), cancellation_token=token, on_tool_start=told.append)
    assert (result.outcome, result.ran, told) == ("not-executed", False, [])


async def test_a_stopped_call_is_not_tried_again() -> None:
    """Cancelling ends the attempts that a time-out would go on with."""
    token, begun = CancellationToken(), 0

    async def hang() -> None:
        nonlocal begun
        begun += 1
        asyncio.get_running_loop().call_soon(token.cancel)
        await asyncio.Event().wait()

    (result,) = await run(Tools([hang], tool_call_timeout=5), call("hang"), cancellation_token=token)
    assert (result.outcome, begun) == ("cancelled", 1)
    assert token._callbacks == []


async def test_two_calls_without_leave_run_one_by_one_and_one_runs_in_the_callers_task() -> None:
    """A single call needs no task of its own, even where calls may run side by side."""
    seen: list[Any] = []

    async def look() -> None:
        seen.append(asyncio.current_task())

    await run(Tools([look], parallel_tool_calls=True), call("look"))
    assert seen == [asyncio.current_task()]


async def test_images_and_files_come_back_as_parts() -> None:
    """F19: a tool that returns an image yields a message whose content is a list of parts, bookkeeping removed."""
    image = ImageContent(Media.of(b"\x89PNG\r\n\x1a\n"), extra={"_isthmus": {"x": 1}})

    def draw() -> Any:
        return ["the plan:", image]

    (message,) = await execute([draw], call("draw"))
    url = {"url": "data:image/png;base64,iVBORw0KGgo="}
    assert message["content"] == [{"type": "text", "text": "the plan:"}, {"type": "image_url", "image_url": url}]


async def test_a_formatter_sees_the_value_before_any_part_is_made() -> None:
    """With a formatter its text is the content, whatever the handler returned."""
    tool = Tool(name="t", handler=lambda args: [1], formatter=lambda value: f"{len(value)} row")
    (message,) = await execute([tool], call("t"))
    assert message["content"] == "1 row"


async def test_a_value_that_says_error_is_a_failed_call() -> None:
    """A mapping with something under "error" is shown as it is, and counts as failed."""
    tool = Tool(name="t", handler=lambda args: {"error": "quota", "left": 0})
    (result,) = await run([tool], call("t"))
    assert (result.outcome, result.content, result.ran) == ("error", '{"error":"quota","left":0}', True)


async def test_a_check_that_fails_itself_ends_no_batch() -> None:
    """A validator of the application's that raises something else than a ValueError is answered too."""

    def check(n: int) -> int:
        raise ZeroDivisionError(n)

    def book(n: Annotated[int, AfterValidator(check)]) -> None:
        """Book."""

    results = await run([book, double], call("book", n=1), call("double", n=1))
    assert [result.outcome for result in results] == ["invalid-arguments", "ok"]
    assert "ZeroDivisionError: 1" in results[0].text


@pytest.mark.parametrize("depth", [900, 5000, 100_000])
async def test_arguments_of_any_depth_end_no_batch(depth: int) -> None:
    """Arguments that are nested deeper than anybody recurses are answered or run, and nothing is raised."""
    tree = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    tool = Tool(name="t", parameters_schema=tree, handler=lambda args: "ran")
    deep = '{"a":' * depth + "1.5" + "}" * depth
    (result,) = await run([tool], make_call("t", deep, call_id="c1"))
    assert result.outcome in ("ok", "invalid-arguments")
    assert depth < 1000 or result.outcome == "invalid-arguments"


_KINDS = ["ok", "raise", "wait", "block", "fail", "unknown", "wrong"]


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(_KINDS), max_size=6),
    parallel=st.booleans(),
    limit=st.none() | st.integers(0, 3),
    after=st.none() | st.integers(0, 5),
)
def test_each_call_has_one_answer_whatever_happens(
    kinds: list[str], parallel: bool, limit: int | None, after: int | None
) -> None:
    """Whatever tools do, whoever cancels when: one answer a call, in order, starts and ends in pairs, no task left."""
    release = threading.Event()
    starts: list[str] = []
    ends: list[str] = []

    async def act(kind: str) -> Any:
        await asyncio.sleep(0)
        if kind == "raise":
            raise KeyError(kind)
        if kind == "wait":
            await asyncio.Event().wait()
        return ToolFailure(text="no", error=ToolError("no")) if kind == "fail" else kind

    def block() -> None:
        release.wait(10)

    async def main() -> list[ToolResult]:
        token = CancellationToken()
        tools = Tools(
            [act, block],
            parallel_tool_calls=parallel,
            tool_call_timeout=0.005,
            tool_call_max_retries=1,
            tool_call_limits=None if limit is None else {"act": limit},
        )
        named = {"block": "block", "unknown": "nobody"}
        calls = [
            call(named.get(kind, "act"), str(n), **({} if kind in ("block", "wrong") else {"kind": kind}))
            for n, kind in enumerate(kinds)
        ]
        if after is not None:
            asyncio.get_running_loop().call_later(after / 1000, token.cancel)
        results = await run(
            tools,
            *calls,
            cancellation_token=token,
            on_tool_start=lambda each: starts.append(each.call_id),
            on_tool_end=lambda each, result: ends.append(each.call_id),
        )
        assert not tasks()
        assert token._callbacks == []
        return results

    try:
        results = asyncio.run(main())
    finally:
        release.set()
    assert [result.call_id for result in results] == [str(n) for n in range(len(kinds))]
    assert sorted(starts) == sorted(ends) == [result.call_id for result in results if result.ran]
    assert all(isinstance(result.content, str) and result.content for result in results)
    if limit is not None:
        assert sum(result.ran and result.tool == "act" for result in results) <= limit
