"""Agents: the loop and what drives it. Names load where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.harness.agents import DefaultAgent
    from isthmus.harness.agenttool import AgentTool
    from isthmus.harness.approval import ApprovalShim
    from isthmus.harness.compaction import CompactionShim, keep_whole
    from isthmus.harness.decisions import ApprovalRequest, Decision
    from isthmus.harness.descriptor import AgentDescriptor, Runner
    from isthmus.harness.errors import (
        AgentFileError,
        ApprovalError,
        JournalError,
        McpServerError,
        SkillFileError,
        SnapshotError,
        StateConflictError,
        ToolNameCollisionError,
    )
    from isthmus.harness.helpers import DefaultAgentTool, DefaultHandoff
    from isthmus.harness.historylimit import HistoryLimitShim
    from isthmus.harness.journal import Journal, SqliteJournal
    from isthmus.harness.limits import Limits
    from isthmus.harness.mcp import McpShim
    from isthmus.harness.mcpservers import HttpServer, StdioServer
    from isthmus.harness.outcome import Outcome
    from isthmus.harness.plan import PlanShim, PlanStep, plan_of
    from isthmus.harness.result import RunResult
    from isthmus.harness.resume import Resume
    from isthmus.harness.runevents import RunEvent, RunEventKind, StateSnapshot
    from isthmus.harness.runnerhooks import RunIdentity, RunnerHooks
    from isthmus.harness.runstream import RunEventStream, RunStream
    from isthmus.harness.shims import (
        BoundShim,
        DelegatingBoundShim,
        DelegatingShim,
        PreparedTurn,
        Ruling,
        Shim,
        TurnState,
    )
    from isthmus.harness.skills import Skill, SkillsShim
    from isthmus.harness.snapshot import AgentId, AgentSnapshot
    from isthmus.harness.sqlstores import PostgresStateStore, SqliteStateStore
    from isthmus.harness.state import RunState
    from isthmus.harness.stores import JsonFileStateStore, MemoryStateStore, StateStore
    from isthmus.harness.toolconfig import INHERIT_TOOLS, OVERRIDE_TOOLS, RESTRICT_TOOLS, ToolConfig
    from isthmus.harness.view import ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX, PLAN_STATE_KEY
    from isthmus.models.executor import ToolResult

_PLACES = {
    "ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX": "isthmus.harness.view",
    "AgentDescriptor": "isthmus.harness.descriptor",
    "AgentFileError": "isthmus.harness.errors",
    "AgentId": "isthmus.harness.snapshot",
    "AgentSnapshot": "isthmus.harness.snapshot",
    "AgentTool": "isthmus.harness.agenttool",
    "ApprovalError": "isthmus.harness.errors",
    "ApprovalRequest": "isthmus.harness.decisions",
    "ApprovalShim": "isthmus.harness.approval",
    "BoundShim": "isthmus.harness.shims",
    "CompactionShim": "isthmus.harness.compaction",
    "Decision": "isthmus.harness.decisions",
    "DefaultAgent": "isthmus.harness.agents",
    "DefaultAgentTool": "isthmus.harness.helpers",
    "DefaultHandoff": "isthmus.harness.helpers",
    "DelegatingBoundShim": "isthmus.harness.shims",
    "DelegatingShim": "isthmus.harness.shims",
    "HistoryLimitShim": "isthmus.harness.historylimit",
    "HttpServer": "isthmus.harness.mcpservers",
    "INHERIT_TOOLS": "isthmus.harness.toolconfig",
    "Journal": "isthmus.harness.journal",
    "JournalError": "isthmus.harness.errors",
    "JsonFileStateStore": "isthmus.harness.stores",
    "Limits": "isthmus.harness.limits",
    "McpServerError": "isthmus.harness.errors",
    "McpShim": "isthmus.harness.mcp",
    "MemoryStateStore": "isthmus.harness.stores",
    "OVERRIDE_TOOLS": "isthmus.harness.toolconfig",
    "Outcome": "isthmus.harness.outcome",
    "PLAN_STATE_KEY": "isthmus.harness.view",
    "PlanShim": "isthmus.harness.plan",
    "PlanStep": "isthmus.harness.plan",
    "PostgresStateStore": "isthmus.harness.sqlstores",
    "PreparedTurn": "isthmus.harness.shims",
    "RESTRICT_TOOLS": "isthmus.harness.toolconfig",
    "Resume": "isthmus.harness.resume",
    "Ruling": "isthmus.harness.shims",
    "RunEvent": "isthmus.harness.runevents",
    "RunEventKind": "isthmus.harness.runevents",
    "RunEventStream": "isthmus.harness.runstream",
    "RunIdentity": "isthmus.harness.runnerhooks",
    "RunResult": "isthmus.harness.result",
    "RunState": "isthmus.harness.state",
    "RunStream": "isthmus.harness.runstream",
    "Runner": "isthmus.harness.descriptor",
    "RunnerHooks": "isthmus.harness.runnerhooks",
    "Shim": "isthmus.harness.shims",
    "Skill": "isthmus.harness.skills",
    "SkillFileError": "isthmus.harness.errors",
    "SkillsShim": "isthmus.harness.skills",
    "SnapshotError": "isthmus.harness.errors",
    "SqliteJournal": "isthmus.harness.journal",
    "SqliteStateStore": "isthmus.harness.sqlstores",
    "StateConflictError": "isthmus.harness.errors",
    "StateSnapshot": "isthmus.harness.runevents",
    "StateStore": "isthmus.harness.stores",
    "StdioServer": "isthmus.harness.mcpservers",
    "ToolConfig": "isthmus.harness.toolconfig",
    "ToolNameCollisionError": "isthmus.harness.errors",
    "ToolResult": "isthmus.models.executor",
    "TurnState": "isthmus.harness.shims",
    "keep_whole": "isthmus.harness.compaction",
    "plan_of": "isthmus.harness.plan",
}

__all__ = [
    "ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX",
    "INHERIT_TOOLS",
    "OVERRIDE_TOOLS",
    "PLAN_STATE_KEY",
    "RESTRICT_TOOLS",
    "AgentDescriptor",
    "AgentFileError",
    "AgentId",
    "AgentSnapshot",
    "AgentTool",
    "ApprovalError",
    "ApprovalRequest",
    "ApprovalShim",
    "BoundShim",
    "CompactionShim",
    "Decision",
    "DefaultAgent",
    "DefaultAgentTool",
    "DefaultHandoff",
    "DelegatingBoundShim",
    "DelegatingShim",
    "HistoryLimitShim",
    "HttpServer",
    "Journal",
    "JournalError",
    "JsonFileStateStore",
    "Limits",
    "McpServerError",
    "McpShim",
    "MemoryStateStore",
    "Outcome",
    "PlanShim",
    "PlanStep",
    "PostgresStateStore",
    "PreparedTurn",
    "Resume",
    "Ruling",
    "RunEvent",
    "RunEventKind",
    "RunEventStream",
    "RunIdentity",
    "RunResult",
    "RunState",
    "RunStream",
    "Runner",
    "RunnerHooks",
    "Shim",
    "Skill",
    "SkillFileError",
    "SkillsShim",
    "SnapshotError",
    "SqliteJournal",
    "SqliteStateStore",
    "StateConflictError",
    "StateSnapshot",
    "StateStore",
    "StdioServer",
    "ToolConfig",
    "ToolNameCollisionError",
    "ToolResult",
    "TurnState",
    "keep_whole",
    "plan_of",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(place), name)
