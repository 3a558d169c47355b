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
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from support.corpus import corpus_root, rows

SRC = Path(__file__).resolve().parents[2] / "src"
DECODERS = {
    "openai-chat": ("openai", ("decode", "reply", "calls", "merge", "usage"), "openai_chat"),
    "anthropic-messages": ("anthropic", ("decode", "reply", "blocks", "usage"), "anthropic"),
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
SECONDS = 60


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
    elif isinstance(node, ast.Return) and node.value is not None:
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
    _, _, package = DECODERS[api]
    path = SRC / "isthmus" / "adapters" / package / f"{module}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    idle, made = _idle(tree), []
    for place, node in enumerate(_order(tree)):
        if id(node) in idle:
            continue
        for what, other in changes(node):
            changed = _Swap(place, other).visit(copy.deepcopy(tree))
            source = ast.unparse(ast.fix_missing_locations(changed))
            name = f"isthmus.adapters.{package}.{module}"
            made.append(Mutant(api, name, getattr(node, "lineno", 0), f"{what}: {ast.unparse(node)[:60]!r}", source))
    return made


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


def _judge(mutant: Mutant, folder: Path) -> int:
    """In a process of its own: 1 where a law finds the mutant, 0 where it survives."""
    from isthmus.conformance import conform

    report = asyncio.run(conform(_adapter(mutant.api), recordings=folder, patience=3.0))
    return 0 if report.ok else 1


def run(mutant: Mutant, folder: Path) -> str:
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
            status = _judge(mutant, folder)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hung"
    return "killed" if os.WEXITSTATUS(status) else "survived"


def tape(api: str, folder: Path, *, count: int, seed: int) -> None:
    """Recordings of an API, varied by their tags, with the results of the unchanged decoder beside them."""
    root = corpus_root()
    if root is None:
        raise SystemExit("no recorded provider traffic beside the checkout (ISTHMUS_CORPUS names its folder)")
    chance, chosen, seen = random.Random(seed), [], Counter[str]()
    usable = [row for row in rows(api) if (root / row.path / "response.body").stat().st_size < 60_000]
    for row in sorted(usable, key=lambda row: chance.random()):
        if len(chosen) < count and any(
            seen[f"{row.stream}{tag}"] < 3 for tag in (*row.tags, str(row.status), row.provider)
        ):
            seen.update(f"{row.stream}{tag}" for tag in (*row.tags, str(row.status), row.provider))
            chosen.append(row)
    for place, row in enumerate(chosen):
        shutil.copytree(root / row.path, folder / f"{place:03}")
        if row.stream and row.status == 200:
            _damage(folder / f"{place:03}", chance)
    child = os.fork()
    if child == 0:
        _write_results(api, folder)
        os._exit(0)
    os.waitpid(child, 0)


_STRANGE = (
    b"data: {not json\n\n",
    b'data: {"error": {"message": "overloaded", "code": 529}}\n\n',
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n',
    b"data: [1, 2]\n\n",
    b'data: {"choices": []}\n\n',
    b": comment\n\n",
)


def _damage(place: Path, chance: random.Random) -> None:
    """Further recordings beside one: a frame left out, doubled, moved, strange, cut, or all after it gone."""
    frames = (place / "response.body").read_bytes().split(b"\n\n")
    if len(frames) < 3:
        return
    for number in range(7):
        at = chance.randrange(len(frames) - 1)
        other = frames[chance.randrange(len(frames) - 1)]
        strange = chance.choice(_STRANGE).removesuffix(b"\n\n")
        changed = (
            [*frames[:at], *frames[at + 1 :]],
            [*frames[:at], frames[at], *frames[at:]],
            [*frames[: at + 1], b""],
            [*frames[:at], strange, *frames[at:]],
            [*frames[:at], other, *frames[at:]],
            [*frames[:-3], b""],
            [*frames[:at], frames[at][: len(frames[at]) // 2]],
        )[number]
        copied = place.with_name(f"{place.name}-{number}")
        shutil.copytree(place, copied)
        (copied / "response.body").write_bytes(b"\n\n".join(changed))
        meta = json.loads((copied / "response.meta.json").read_text(encoding="utf-8"))
        meta.pop("chunk_sizes", None)
        meta["ended"] = chance.choice(["framed", "broken", "framed"])
        meta["headers"] = [pair for pair in meta.get("headers") or () if pair[0].lower() != "content-length"]
        (copied / "response.meta.json").write_text(json.dumps(meta), encoding="utf-8")


def _write_results(api: str, folder: Path) -> None:
    from isthmus.conformance.laws_wire import plain
    from isthmus.conformance.playback import replay

    for place in sorted(folder.iterdir()):
        result = replay(place, adapter=DECODERS[api][0])
        outcome = plain(result if result.error is None else result.error)
        (place / "result.json").write_text(json.dumps(outcome), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Make the mutants, run a sample of them, print the rate and what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="mutants of each module; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recordings", type=int, default=80, help="recordings of each API")
    parser.add_argument("--only", default="", help="the part of a module's name")
    options = parser.parse_args(arguments)
    chance, totals, survivors = random.Random(options.seed), Counter[str](), []
    with tempfile.TemporaryDirectory() as scratch:
        for api, (_, modules, package) in DECODERS.items():
            folder = Path(scratch) / api
            folder.mkdir()
            tape(api, folder, count=options.recordings, seed=options.seed)
            if run(Mutant(api, "", 0, "nothing", ""), folder) != "survived":
                raise SystemExit(f"{api}: the unchanged decoder breaks a law over these recordings")
            for module in modules:
                if options.only not in f"{package}.{module}":
                    continue
                made = mutants(api, module)
                sample = chance.sample(made, min(options.count or len(made), len(made)))
                with ThreadPoolExecutor(2) as pool:
                    ends = list(pool.map(lambda mutant, at=folder: run(mutant, at), sample))
                counts = Counter(ends)
                totals.update(counts)
                survivors += [mutant for mutant, end in zip(sample, ends, strict=True) if end == "survived"]
                killed = counts["killed"] + counts["hung"]
                print(f"{package}.{module}: {killed} of {len(sample)} found ({len(made)} in all)", flush=True)
    for mutant in survivors:
        print(f"SURVIVED {mutant.module}:{mutant.line}: {mutant.what}")
    found, total = totals["killed"] + totals["hung"], sum(totals.values())
    print(f"\n{found} of {total} found: {100 * found / max(1, total):.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
