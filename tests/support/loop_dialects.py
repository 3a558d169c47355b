"""How the recorded requests of each API are read for comparison, see `support.loops`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from isthmus.adapters.registry import available_providers, load_adapter
from isthmus.models.contract import ToolSpec
from isthmus.models.messages import tool_message
from support.loops import Dialect, Item, joined, present, read_json


def _adapter(provider: str, model: str, **settings: Any) -> Any:
    return load_adapter(provider, model=model, api_key="none", base_url="http://nowhere.invalid", **settings)


def _named(tools: Iterable[Item]) -> list[Item]:
    """Declared tools by name; which of them a hosted search finds late is a caller's own option."""
    bare = [{key: value for key, value in tool.items() if key != "defer_loading"} for tool in tools]
    return sorted(bare, key=lambda tool: str(tool.get("name", tool)))


# ---- Chat Completions


def _messages(body: Item) -> list[Item]:
    return list(body.get("messages") or [])


def _said(item: Item) -> bool:
    return item.get("role") == "assistant"


def _chat_gist(item: Item) -> Item:
    item = present(item)
    item["content"] = joined(item.get("content", ""))
    calls = []
    for call in item.pop("tool_calls", None) or []:
        function = {**call["function"], "arguments": read_json(call["function"].get("arguments"))}
        calls.append({**call, "function": function})
    return {**item, "tool_calls": calls} if calls else item


def _chat_tools(body: Item) -> dict[str, Any]:
    tools = []
    for tool in body.get("tools") or []:
        function = tool["function"]
        tools.append(
            ToolSpec(
                name=function["name"],
                description=function.get("description", ""),
                parameters_schema=function.get("parameters"),
                strict=function.get("strict"),
            )
        )
    choice = body.get("tool_choice")
    name = choice["function"]["name"] if isinstance(choice, dict) else choice
    return {"tools": tools, "tool_choice": name, "parallel_tool_calls": body.get("parallel_tool_calls", True)}


def _preset(provider: str, body: Item) -> Any:
    """The adapter of the server itself, where there is a row for it."""
    name = provider.replace("-", "")
    return _adapter(name if name in available_providers() else "openai", str(body["model"]))


CHAT = Dialect(
    provider="openai",
    adapter=_preset,
    items=_messages,
    ours=_said,
    neutral=iter,
    gist=_chat_gist,
    label=lambda item: (item["role"], item.get("tool_call_id")),
    context=_chat_tools,
    beside=lambda body: {name: body.get(name) for name in ("tools", "tool_choice", "parallel_tool_calls")},
)

# ---- Responses


def _inputs(body: Item) -> list[Item]:
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or [])


def _models(item: Item) -> bool:
    kind = str(item.get("type") or "message")
    return item.get("role") == "assistant" or ("role" not in item and not kind.endswith("_output"))


def _results(items: list[Item]) -> Iterator[Item]:
    for item in items:
        yield tool_message(item["call_id"], item["output"]) if item.get("type") == "function_call_output" else item


def _item_gist(item: Item) -> Item:
    item = present(item)
    kind = item.setdefault("type", "message")
    if kind == "message":
        item["role"] = "developer" if item.get("role") == "system" else item.get("role")
        item["content"] = joined(item.get("content"), ("input_text", "output_text", "text"))
    return {key: read_json(value) if key in ("arguments", "output") else value for key, value in item.items()}


def _kept(body: Item) -> dict[str, Any]:
    hosted = [tool for tool in body.get("tools") or () if tool.get("type") != "function"]
    tools = [
        ToolSpec(
            name=tool["name"],
            description=tool.get("description") or "",
            parameters_schema=tool.get("parameters"),
            strict=tool.get("strict"),
        )
        for tool in body.get("tools") or ()
        if tool.get("type") == "function"
    ]
    options = {"tools": hosted, **{name: body[name] for name in ("store",) if name in body}}
    return {"brief": body.get("instructions") or "", "tools": tools, "options": options}


RESPONSES = Dialect(
    provider="openai-responses",
    adapter=lambda _, body: _adapter("openai-responses", str(body["model"])),
    items=_inputs,
    ours=_models,
    neutral=_results,
    gist=_item_gist,
    label=lambda item: (item["type"], item.get("role"), item.get("call_id")),
    context=_kept,
    beside=lambda body: {
        "instructions": body.get("instructions"),
        "tools": _named(body.get("tools") or ()),
    },
)

# ---- Messages, and Converse


def _blocks(item: Item) -> list[Item]:
    content = item["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _call_of(block: Item) -> Item | None:
    held = block.get("toolUse")
    if held is not None:
        return {"id": held["toolUseId"], "name": held["name"], "input": held["input"]}
    return block if block.get("type") == "tool_use" else None


def _turns(items: list[Item]) -> Iterator[Item]:
    """Recorded turns as neutral messages: texts, calls and results in the neutral words, all else as it is."""
    for item in items:
        parts: list[Any] = []
        calls: list[Item] = []
        for block in _blocks(item):
            call = _call_of(block)
            if call is not None:
                function = {"name": call["name"], "arguments": json.dumps(call["input"])}
                calls.append({"id": call["id"], "type": "function", "function": function})
            elif "toolResult" in block:
                yield tool_message(block["toolResult"]["toolUseId"], _result(block["toolResult"]["content"]))
            elif block.get("type") == "tool_result":
                failed = {"is_error": True} if block.get("is_error") else {}
                yield {**tool_message(block["tool_use_id"], block.get("content") or ""), **failed}
            else:
                parts.append({**block, "type": "text"} if "text" in block else block)
        if parts or calls:
            yield {"role": item["role"], "content": parts or None, **({"tool_calls": calls} if calls else {})}


def _result(content: list[Item]) -> Any:
    if len(content) == 1 and "json" in content[0]:
        return content[0]["json"]
    return [{**part, "type": "text"} if "text" in part else part for part in content]


def _unmarked(value: Any) -> Any:
    """Without members that are null, and without marks for the prompt's cache, which each client sets its own way."""
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if item is not None and key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def _turn_gist(item: Item) -> Item:
    blocks = [_unmarked(block) for block in _blocks(item) if "cachePoint" not in block]
    for block in blocks:
        if block.get("type") == "tool_result":
            block["content"] = joined(block.get("content", ""))
    return {**item, "content": blocks}


def _system(body: Item) -> str:
    system = body.get("system") or ""
    return system if isinstance(system, str) else "".join(block.get("text", "") for block in system)


def _functions(body: Item) -> list[Item]:
    """The tools that the caller runs: name, description and schema."""
    tools = [*(body.get("toolConfig") or {}).get("tools", ()), *(body.get("tools") or ())]
    specs = [tool.get("toolSpec", tool) for tool in tools]
    return [spec for spec in specs if "inputSchema" in spec or "input_schema" in spec]


def _specs(body: Item) -> Iterator[ToolSpec]:
    for spec in _functions(body):
        schema = spec.get("inputSchema", {}).get("json", spec.get("input_schema"))
        yield ToolSpec(name=spec["name"], description=spec.get("description", ""), parameters_schema=schema)


def _asked(body: Item) -> dict[str, Any]:
    return {"brief": _system(body), "tools": tuple(_specs(body))}


def _declared(body: Item) -> Item:
    return {"system": _system(body), "tools": _named(_unmarked(_functions(body)))}


def _turn_dialect(provider: str, adapter: Callable[[str, Item], Any]) -> Dialect:
    return Dialect(
        provider=provider,
        adapter=adapter,
        items=_messages,
        ours=_said,
        neutral=_turns,
        gist=_turn_gist,
        label=lambda item: (item["role"],),
        context=_asked,
        beside=_declared,
    )


def _bedrock(_: str, body: Item) -> Any:
    invoked = "anthropic_version" in body
    return _adapter("bedrock", "anthropic.m" if invoked else "amazon.m", aws_region="us-east-1")


MESSAGES = _turn_dialect("anthropic", lambda _, body: _adapter("anthropic", body["model"]))
BEDROCK = _turn_dialect("bedrock", _bedrock)
