"""The tables behind the rules: who may see whom, and every exception by name."""

from __future__ import annotations

from architecture.source import Module

_RANK0 = {
    "isthmus.errors",
    "isthmus.secret",
    "isthmus.sync",
    "isthmus.version",
    "isthmus.wire.frame",
    "isthmus.wire.partial_json",
    "isthmus.wire.retryafter",
}
_BASE = {
    *("base", "chat", "codec", "faces", "registry", "adjust", "chat_face", "model_face", "observed", "render", "views"),
}
_SHARED = {"bodies", "classify", "drive", "endpoint", "openai_chat", "anthropic"}
_TOP = ("console", "studio", "bulk")


def place(name: str) -> tuple[int, str]:
    """The rank and the group of a module."""
    if name in _RANK0:
        return 0, "rank0"
    parts = name.split(".")[1:]
    if not parts or parts == ["__main__"]:
        return 8, "door"
    top, sub = parts[0], parts[1] if len(parts) > 1 else ""
    if top == "observability":
        shared = dict.fromkeys(
            ("background", "catalogue", "config", "contents", "facts", "hooks", "scope"), (1, "hooks")
        )
        # What `[telemetry]` says is composed where all else is.
        places = {"": (8, "door"), "configured": (6, "build"), "export": (2, "observability.otel"), **shared}
        return places.get(sub, (2, f"observability.{sub}"))
    if top == "adapters":
        if sub in ("", *_BASE):
            return 2, "adapters"
        return (5, "conformance") if sub == "testing" else (3, f"adapters.{sub}")
    if top in _TOP:
        return 7, top
    fixed = {
        "models": 1,
        "wire": 1,
        "settings": 1,
        "transport": 2,
        "chain": 4,
        "harness": 5,
        "conformance": 5,
        "build": 6,
    }
    return fixed.get(top, 9), top


def may_import(source: str, target: str) -> bool:
    """Whether one module may import another."""
    (rank, group), (other_rank, other) = place(source), place(target)
    if group == other or other_rank == 0 or rank in (6, 8):
        return True
    if rank <= 2:
        return other_rank < rank or (group.startswith("observability.") and other == "observability.runstore")
    if rank == 3:
        return other_rank < 3 or other in {f"adapters.{name}" for name in _SHARED}
    if other_rank == 1 or target in ("isthmus.adapters.base", "isthmus.adapters"):
        return True
    if rank == 4:
        return False
    if rank == 5:
        # What a run leaves is shown as the model face shows it: the same pure projections.
        if (group, target) == ("harness", "isthmus.adapters.views"):
            return True
        return other == "chain" or (group == "conformance" and other in ("transport", "adapters"))
    return rank == 7 and other_rank in (5, 6)


def may_hide_imports(module: Module) -> bool:
    """Whether first-party imports may stand inside functions here."""
    return module.path.name == "__init__.py" or module.name in {
        "isthmus.adapters.base",
        "isthmus.adapters.registry",
        "isthmus.build",
        "isthmus.console.main",
    }


_PINS: dict[str, tuple[str, ...]] = {
    "aiohttp": ("isthmus.transport.http",),
    "yarl": ("isthmus.transport.http",),
    "opentelemetry": ("isthmus.observability.export", "isthmus.observability.otel"),
    "jinja2": ("isthmus.models.prompts",),
    "click": ("isthmus.console",),
    "pytest": ("isthmus.conformance.pytest_plugin",),
    "rich": ("isthmus.console", "isthmus.studio"),
    "textual": ("isthmus.console",),
    "starlette": ("isthmus.studio",),
    "uvicorn": ("isthmus.studio",),
    "msgspec": ("isthmus.",),
    "pydantic": ("isthmus.models.", "isthmus.harness.", "isthmus.conformance.live."),
    "pydantic_core": ("isthmus.models.",),
    "typing_extensions": ("isthmus.models.model", "isthmus.models.pytypes", "isthmus.models.validators"),
    "platformdirs": ("isthmus.settings", "isthmus.console", "isthmus.adapters.local"),
    "litellm": ("isthmus.adapters.litellm",),
    "genai_prices": ("isthmus.chain.prices",),
    "xllamacpp": ("isthmus.adapters.local",),
    # A server to steer against speaks the official SDK's own models, over the WebSocket library that the SDK needs.
    "openai": ("isthmus.adapters.openai_responses.sdk", "isthmus.conformance.live"),
    "websockets": ("isthmus.conformance.live",),
    "botocore": ("isthmus.adapters.bedrock",),
    "psycopg": ("isthmus.harness.sqlstores",),
    # The protocol's library, its types, and the HTTP client that it wants its headers in.
    "mcp": ("isthmus.harness.mcpopen",),
    "mcp_types": ("isthmus.harness.mcpopen",),
    "httpx2": ("isthmus.harness.mcpopen",),
}


def may_use(name: str, library: str) -> bool:
    """Whether a module may import a third-party library; a rank-0 module may import none."""
    return name not in _RANK0 and (name + ".").startswith(_PINS.get(library, ("!",)))


# Signatures that DESIGN section 4 or a seed fixes.
CONSTRUCTORS = {
    "AnthropicAdapter",
    "BedrockAdapter",
    "DefaultAgent",
    "LiteLLMAdapter",
    "LangServeAdapter",
    "LocalAdapter",
    "OpenAIChatAdapter",
    "OpenAIResponsesAdapter",
    "TierError",
    "Tool",
}
SIGNATURES = {
    "isthmus.chain.define:define_chain",
    "isthmus.chain.markers:define_marker",
    "isthmus.adapters.faces:get_response",
    "isthmus.adapters.faces:stream_response",
    "isthmus.adapters.openai_responses.client:get_response",
    "isthmus.adapters.openai_responses.client:stream_response",
    "isthmus.models.capabilities:apply_thinking",
    "isthmus.models.events:__init__",
    "isthmus.models.model:get_response",
    "isthmus.models.model:stream_response",
    "isthmus.models.run:append_if_unique",
    "isthmus.models.outputs:format_error",
    "isthmus.models.outputs:format_success",
    "isthmus.models.tools:run",
    "isthmus.models.output:validate_response_with_retry",
}

# Vocabularies: one name a fact, and splitting them would only hide the list.
MANY_NAMES = {"isthmus.errors", "isthmus.models.events", "isthmus.observability.hooks"}

# Where a stranger's code is called, or an outcome is made out of any failure.
BOUNDARIES = {
    "isthmus.models.fold",
    "isthmus.models.stream",
    "isthmus.models.executor",
    "isthmus.models.handlers",
    "isthmus.observability",
    "isthmus.observability.background",
    "isthmus.observability.configured",
    "isthmus.observability.contents",
    "isthmus.observability.enrich",
    "isthmus.observability.export",
    "isthmus.observability.facts",
    "isthmus.observability.hooks",
    "isthmus.settings.sources",
    "isthmus.harness.mcplink",
    "isthmus.harness.mcpopen",
    "isthmus.observability.otel",
    "isthmus.adapters.observed",
    "isthmus.chain.chain",
    "isthmus.chain.settling",
    "isthmus.chain.context",
    "isthmus.chain.markers",
    "isthmus.chain.prices",
    "isthmus.harness.conversation",
    "isthmus.harness.audience",
    "isthmus.harness.delegation",
    "isthmus.adapters.faces",
    "isthmus.adapters.litellm",
    "isthmus.adapters.openai_responses.client",
    "isthmus.adapters.openai_responses.sdk",
    "isthmus.adapters.registry",
    "isthmus.models.model",
    "isthmus.conformance.judge",
    "isthmus.conformance.live",
    "isthmus.conformance.laws_hygiene",
    "isthmus.conformance.laws_maker",
    "isthmus.conformance.laws_turn",
    "isthmus.conformance.laws_wire",
    "isthmus.conformance.playing",
    "isthmus.conformance.reading",
    "isthmus.conformance.recorder",
    "isthmus.models.retry",
    "isthmus.conformance.playback",
    "isthmus.conformance.seen",
    "isthmus.conformance.server",
    "isthmus.conformance.subject",
    "isthmus.conformance.watch",
    "isthmus.conformance.named",
    "isthmus.console.main",
}

PROVIDERS = ("anthropic", "openai", "bedrock", "langserve", "litellm", "xllamacpp", "claude", "gpt-", "gemini", "groq")

_MAY_NAME: dict[str, tuple[str, ...]] = {
    "anthropic": (
        "isthmus.adapters.anthropic",
        "isthmus.adapters.bedrock",
        "isthmus.adapters.registry",
        "isthmus.conformance.wire_messages",
    ),
    "bedrock": ("isthmus.adapters.bedrock",),
    "claude": ("isthmus.adapters.anthropic",),
    # The public spelling of one dialect's native items is fixed by seed 004 and DESIGN section 3.
    "openai": (
        "isthmus.adapters.openai_chat",
        "isthmus.adapters.openai_responses",
        "isthmus.adapters.registry",
        "isthmus.models.neutral",
        "isthmus.conformance.live",
        "isthmus.conformance.wire_chat",
    ),
    "gpt-": ("isthmus.adapters.openai_chat",),
    "litellm": ("isthmus.adapters.litellm",),
    "genai_prices": ("isthmus.chain.prices",),
    "langserve": ("isthmus.adapters.langserve",),
    "xllamacpp": ("isthmus.adapters.local",),
}


def may_name(name: str, provider: str) -> bool:
    """Whether a module may hold a provider's name."""
    return name.startswith(_MAY_NAME.get(provider, ("!",)))
