"""Which tools an agent has that works for another one: that one's, its own, or some of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from isthmus.harness.shims import with_tools
from isthmus.models.contract import ToolSpec
from isthmus.models.tools import Tools

ToolSet: TypeAlias = Tools | Sequence[ToolSpec | Callable[..., Any]]


class _From(StrEnum):
    PARENT = "inherit"
    NOBODY = "override"
    NAMED = "restrict"


@dataclass(frozen=True, slots=True)
class ToolConfig:
    """A rule for an agent's tools; made from `INHERIT_TOOLS`, `OVERRIDE_TOOLS` and `RESTRICT_TOOLS`.

    An agent that works for nobody has the tools of its own alone.

    Args:
        source: where tools come from besides.
        names: those that may come, with "restrict".
        tools: the agent's own; None for none.
    """

    source: _From
    names: frozenset[str] = frozenset()
    tools: Tools | None = None

    def with_tools(self, tools: ToolSet | None) -> ToolConfig:
        """The same rule with these tools of the agent's own."""
        return replace(self, tools=_policy(tools))

    def only(self, *names: str, tools: ToolSet | None = None) -> ToolConfig:
        """Inherit those of these names alone; a name that the parent does not have is no error.

        Args:
            names: of the parent's tools.
            tools: tools of the agent's own.
        """
        return ToolConfig(_From.NAMED, frozenset(names), _policy(tools))

    def resolved(self, parent: Tools | None) -> Tools:
        """The tools for an agent that works for one with these: of two with one name the parent's, and its policy.

        Args:
            parent: what is to be inherited; None where there is nobody.
        """
        own = self.tools or Tools()
        if parent is None or self.source is _From.NOBODY:
            return own
        kept = parent.normalized_tools
        if self.source is _From.NAMED:
            kept = tuple(tool for tool in kept if tool.name in self.names)
        if not kept:
            return own
        policy = parent if len(kept) == len(parent.tools) else with_tools(parent, kept)
        names = {tool.name for tool in kept}
        added = tuple(tool for tool in own.normalized_tools if tool.name not in names)
        return with_tools(policy, (*kept, *added)) if added else policy


def _policy(tools: ToolSet | None) -> Tools | None:
    return tools if tools is None or isinstance(tools, Tools) else Tools(tools)


INHERIT_TOOLS = ToolConfig(_From.PARENT)
"""All of the parent's tools, and the agent's own: what holds where nothing is said."""

OVERRIDE_TOOLS = ToolConfig(_From.NOBODY)
"""The agent's own tools alone, as if a `Tools`, a list of tools or None had been given."""

RESTRICT_TOOLS = ToolConfig(_From.NAMED)
"""The parent's tools of the names in `RESTRICT_TOOLS.only(…)`, and the agent's own."""


def tool_config(tools: ToolConfig | ToolSet | None) -> ToolConfig:
    """A rule as it is; tools alone, or None, replace the parent's."""
    return tools if isinstance(tools, ToolConfig) else OVERRIDE_TOOLS.with_tools(tools)
