"""Mutation testing of the decoders: one change of a syntax tree at a time, and the laws that must find it.

Each mutant runs in a process of its own, over recordings beside which the unchanged decoder's results lie. What no law
finds is printed as a survivor. Needs the recorded provider traffic.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from support.tapes import Take, chosen, outcome, takes, written

SRC = Path(__file__).resolve().parents[2] / "src"
DECODERS = {
    "openai-chat": (
        "openai",
        (*(f"adapters.openai_chat.{name}" for name in ("decode", "reply", "calls", "merge", "usage")), "wire.sse"),
    ),
    "anthropic-messages": (
        "anthropic",
        tuple(f"adapters.anthropic.{name}" for name in ("decode", "reply", "blocks", "usage")),
    ),
    "openai-responses": (
        "openai-responses",
        tuple(f"adapters.openai_responses.{name}" for name in ("decode", "items", "usage", "errors")),
    ),
}
SWAPS: dict[type, type] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
SECONDS = 300
FEW = 12
_TIMED = frozenset({"loop-free", "cancel", "early-break", "answers"})


class Mutant(NamedTuple):
    """One changed module."""

    api: str
    module: str
    line: int
    what: str
    source: str


def changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """What can be changed at a node: what it is called, and the node that takes its place."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        changed = copy.deepcopy(node)
        changed.ops[0] = SWAPS[type(node.ops[0])]()
        yield f"{type(node.ops[0]).__name__} swapped", changed
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPS:
        changed = copy.deepcopy(node)
        changed.op = SWAPS[type(node.op)]()
        yield f"{type(node.op).__name__} swapped", changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not dropped", node.operand
    elif isinstance(node, ast.If | ast.IfExp):
        for value in (True, False):
            changed = copy.deepcopy(node)
            changed.test = ast.Constant(value)
            yield f"condition {value}", changed
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "return None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, str):
        yield "constant changed", ast.Constant(_other(node.value))
    elif isinstance(node, ast.Expr | ast.AugAssign) and not _is_docstring(node):
        yield "statement dropped", ast.Pass()


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value + "x"


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Swap(ast.NodeTransformer):
    """Puts another node in the place of the n-th."""

    def __init__(self, place: int, other: ast.AST) -> None:
        self.left = place
        self.other = other

    def visit(self, node: ast.AST) -> Any:
        self.left -= 1
        if self.left == -1:
            return ast.copy_location(self.other, node)
        return self.generic_visit(node)


def _order(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes in the order in which a transformer visits them."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _order(child)


def _idle(tree: ast.Module) -> set[int]:
    """The nodes whose change no reply can show: docstrings, annotations, words of messages, names to import."""
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[Any] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.JoinedStr | ast.Raise | ast.ImportFrom) or _is_docstring(node):
            parts = [node]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Note":
            parts = node.args[1:]
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__slots__":
            parts = [node.value]
        found.update(id(inner) for part in parts if part is not None for inner in ast.walk(part))
    return found


def mutants(api: str, module: str) -> list[Mutant]:
    """Every mutant of one module."""
    path = (SRC / "isthmus" / module.replace(".", "/")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    idle, made = _idle(tree), []
    for place, node in enumerate(_order(tree)):
        if id(node) in idle:
            continue
        for what, other in changes(node):
            changed = _Swap(place, other).visit(copy.deepcopy(tree))
            source = ast.unparse(ast.fix_missing_locations(changed))
            made.append(
                Mutant(
                    api, f"isthmus.{module}", getattr(node, "lineno", 0), f"{what}: {ast.unparse(node)[:60]!r}", source
                )
            )
    return made


class Tape(NamedTuple):
    """What the mutants of an API are played: replies by the hundred, and a folder of a few recordings for all laws."""

    takes: Sequence[Take]
    folder: Path


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.source, module.__name__, "exec"), module.__dict__)


def _adapter(api: str) -> type:
    from isthmus.adapters.registry import resolve

    return resolve(DECODERS[api][0]).factory  # type: ignore[return-value]


def _judge(mutant: Mutant, tape: Tape) -> int:
    """In a process of its own: 1 where a law finds the mutant, 0 where it survives.

    The law that finds most goes first, by itself: every reply is read as what stands beside it.
    """
    from isthmus.conformance import conform

    async def wrong() -> bool:
        for take in tape.takes:
            said = await outcome(DECODERS[mutant.api][0], take)
            if any(said.get(name) != value for name, value in take.expected.items()):
                return True
        return False

    if asyncio.run(wrong()):
        return 1
    report = asyncio.run(conform(_adapter(mutant.api), recordings=tape.folder, patience=3.0))
    # Of a machine that is busy, the clock tells nothing.
    return 0 if all(finding.law in _TIMED for finding in report.errors) else 1


def run(mutant: Mutant, tape: Tape) -> str:
    """ "killed", "survived" or "hung" (which the laws' own clock did not end)."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        status = 1
        try:
            sys.meta_path.insert(0, _Finder(mutant))
            status = _judge(mutant, tape)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hung"
    return "killed" if os.WEXITSTATUS(status) else "survived"


def main(arguments: Sequence[str]) -> int:
    """Make the mutants, run a sample of them, print the rate and what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="mutants of each module; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recordings", type=int, default=30, help="recordings of each API")
    parser.add_argument("--each", type=int, default=6, help="changed forms of each short recording")
    parser.add_argument("--only", default="", help="the part of a module's name")
    options = parser.parse_args(arguments)
    chance, totals, survivors = random.Random(options.seed), Counter[str](), []
    with tempfile.TemporaryDirectory() as scratch:
        for api, (_, modules) in DECODERS.items():
            if not any(options.only in module for module in modules):
                continue
            found = chosen(api, options.recordings, random.Random(options.seed))
            written(found[:FEW], Path(scratch) / api)
            made = takes(found, DECODERS[api][0], random.Random(options.seed), each=options.each)
            chance.shuffle(made)
            tape = Tape(made, Path(scratch) / api)
            if run(Mutant(api, "", 0, "nothing", ""), tape) != "survived":
                raise SystemExit(f"{api}: the unchanged decoder breaks a law over these recordings")
            for module in modules:
                if options.only not in module:
                    continue
                made = mutants(api, module)
                sample = chance.sample(made, min(options.count or len(made), len(made)))
                with ThreadPoolExecutor(2) as pool:
                    ends = list(pool.map(lambda mutant, at=tape: run(mutant, at), sample))
                counts = Counter(ends)
                totals.update(counts)
                survivors += [mutant for mutant, end in zip(sample, ends, strict=True) if end == "survived"]
                killed = counts["killed"] + counts["hung"]
                print(f"{module}: {killed} of {len(sample)} found ({len(made)} in all)", flush=True)
    for mutant in survivors:
        print(f"SURVIVED {mutant.module}:{mutant.line}: {mutant.what}")
    found, total = totals["killed"] + totals["hung"], sum(totals.values())
    print(f"\n{found} of {total} found: {100 * found / max(1, total):.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
