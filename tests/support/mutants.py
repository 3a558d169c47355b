"""Mutation testing of the decoders: one change of a syntax tree at a time, and the kit's laws that must find it.

Each mutant runs in a process of its own, forked where everything but what it changes is loaded, over the committed
recordings alone, and ends at the first law that finds it. What none finds is printed, with the reason if one is kept.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
REASONS = ROOT / "tests" / "conformance" / "survivors.toml"


class Subject(NamedTuple):
    """A decoder: the modules that are changed, and what judges them.

    Args:
        judge: a provider's name, or the name of a reader of bytes.
        settings: what the provider's adapter needs.
        modules: the modules that read replies.
    """

    judge: str
    settings: Mapping[str, Any]
    modules: tuple[str, ...]


def _of(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"adapters.{package}.{name}" for name in names)


DECODERS: Mapping[str, Subject] = {
    "openai_chat": Subject("openai", {}, _of("openai_chat", "decode", "reply", "calls", "merge", "usage")),
    "anthropic": Subject("anthropic", {}, _of("anthropic", "decode", "reply", "blocks", "usage")),
    "openai_responses": Subject("openai-responses", {}, _of("openai_responses", "decode", "items", "usage", "errors")),
    "bedrock": Subject(
        "bedrock", {"aws_region": "us-east-1"}, _of("bedrock", "decode", "reply", "sniff", "texts", "failures")
    ),
    "langserve": Subject(
        "langserve", {"base_url": "http://langserve.invalid"}, _of("langserve", "decode", "reply", "calls")
    ),
    "sse": Subject("SSEParser", {}, ("wire.sse",)),
    "ndjson": Subject("NDJSONParser", {}, ("wire.ndjson",)),
    "eventstream": Subject("EventStreamParser", {}, ("wire.eventstream",)),
}
READERS = ("sse", "ndjson", "eventstream")
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


class Mutant(NamedTuple):
    """One changed module.

    Args:
        module: its name.
        where: the function or the constant in which it is changed.
        line: the line of the change.
        what: the change, and the code that it was made to, with a number where the same is done to several places.
        place: which node is changed, in the order of `_order`.
        other: what takes its place.
    """

    module: str
    where: str
    line: int
    what: str
    place: int
    other: ast.AST

    @property
    def key(self) -> str:
        """What it is known by, whatever line it stands on."""
        return f"{self.module}:{self.where}: {self.what}"

    @property
    def source(self) -> str:
        """The whole module, changed."""
        tree = ast.parse(_path(self.module).read_text(encoding="utf-8"))
        return ast.unparse(ast.fix_missing_locations(_Swap(self.place, self.other).visit(tree)))


def _path(module: str) -> Path:
    return (SRC / module.replace(".", "/")).with_suffix(".py")


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
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, str, bytes):
        yield "constant changed", ast.Constant(_other(node.value))
    elif isinstance(node, ast.Expr | ast.AugAssign) and not _is_docstring(node):
        yield "statement dropped", ast.Pass()


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, bytes):
        return value + b"x"
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


def _order(tree: ast.AST, where: str = "") -> Iterator[tuple[ast.AST, str]]:
    """The nodes in the order in which a transformer visits them, each with the name of what it stands in."""
    yield tree, where
    for child in ast.iter_child_nodes(tree):
        name = getattr(child, "name", "") if isinstance(child, ast.FunctionDef | ast.ClassDef) else ""
        if isinstance(child, ast.Assign | ast.AnnAssign) and not where:
            name = ast.unparse(child.targets[0] if isinstance(child, ast.Assign) else child.target)
        yield from _order(child, f"{where}.{name}".strip(".") if name else where)


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


def mutants(module: str) -> list[Mutant]:
    """Every mutant of one module."""
    module = f"isthmus.{module}"
    tree = ast.parse(_path(module).read_text(encoding="utf-8"))
    idle, made, same = _idle(tree), [], Counter[tuple[str, str]]()
    for place, (node, where) in enumerate(_order(tree)):
        if id(node) in idle:
            continue
        for what, other in changes(node):
            told = f"{what}: {ast.unparse(node)[:70]!r}"
            same[where, told] += 1
            number = f" ({same[where, told]})" if same[where, told] > 1 else ""
            made.append(Mutant(module, where, getattr(node, "lineno", 0), told + number, place, other))
    return made


class Reason(NamedTuple):
    """Why mutants survive.

    Args:
        reason: in words.
        found_by: the tests that find them where no law can; "" where nothing can, as they do what the original does.
    """

    reason: str
    found_by: str


def reasons() -> dict[str, Reason]:
    """Why a mutant may survive, by its key."""
    groups = tomllib.loads(REASONS.read_text(encoding="utf-8"))["survivors"]
    return {key: Reason(group["reason"], group.get("found_by", "")) for group in groups for key in group["mutants"]}


def share(found: int, of: int) -> float:
    """So many per cent."""
    return 100 * found / max(1, of)


def sampled(name: str, count: int, seed: int) -> list[Mutant]:
    """So many mutants of a decoder, by a seed; all of them where the number is 0."""
    made = [mutant for module in DECODERS[name].modules for mutant in mutants(module)]
    return random.Random(f"{name} {seed}").sample(made, min(count or len(made), len(made)))


def main(arguments: Sequence[str]) -> int:
    """Make the mutants, run a sample of them, print the rate and what survived."""
    from support import mutation
    from support.rare import unpacked

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("decoders", nargs="*", help=f"of {', '.join(DECODERS)}; all of them where none is named")
    parser.add_argument("--count", type=int, default=60, help="mutants of each decoder; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--search", type=Path, help="write here, for each survivor, a changed recording that shows it")
    options = parser.parse_args(arguments)
    known, worst = reasons(), 100.0
    for name in options.decoders or DECODERS:
        started, counts, survivors = time.monotonic(), Counter[str](), []
        sample = sampled(name, options.count, options.seed)
        folder = mutation.FRAMES if name in READERS else unpacked(name)
        bench = mutation.Bench(DECODERS[name].judge, DECODERS[name].settings, folder)
        unchanged = bench.run(None)
        if unchanged != mutation.SURVIVED:
            raise SystemExit(f"{name}: the unchanged decoder does not stand its own recordings: {unchanged}")
        for mutant in sample:
            end = bench.run(mutant, search=options.search)
            counts["hung" if end == mutation.HUNG else "survived" if end == mutation.SURVIVED else "found"] += 1
            if end == mutation.SURVIVED:
                survivors.append(mutant)
        for mutant in survivors:
            print(f"  survived {mutant.module}:{mutant.line}: {mutant.key.partition(':')[2]}")
            kept = known.get(mutant.key, Reason("NO REASON IS KEPT", ""))
            print(f"    {kept.reason}{kept.found_by and f'; found by {kept.found_by}'}")
        killed = counts["found"] + counts["hung"]
        whys = [known[mutant.key] for mutant in survivors if mutant.key in known]
        alike = sum(not why.found_by for why in whys)
        worst = min(worst, share(killed, len(sample) - alike))
        print(
            f"{name}: {share(killed, len(sample)):.1f} % of {len(sample)} mutants, "
            f"{share(killed, len(sample) - alike):.1f} % of those that are not alike: "
            f"{counts['found']} found, {counts['hung']} hung, {len(survivors)} survived ({alike} alike, "
            f"{len(whys) - alike} found by other tests, {len(survivors) - len(whys)} without a reason), "
            f"{time.monotonic() - started:.0f} s",
            flush=True,
        )
    return 0 if worst >= 95 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
