"""Reads a source tree as syntax trees: the eyes of the architecture tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "isthmus"


@dataclass(frozen=True)
class Import:
    """One import statement: what it names, where, and whether it runs only inside a function or for type checkers."""

    target: str
    line: int
    in_function: bool
    typing_only: bool


@dataclass
class Module:
    """One file of the package."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree, self.name, self.path.name == "__init__.py"))

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def walk(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in self._nodes if isinstance(node, kinds))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        return self.walk(ast.FunctionDef, ast.AsyncFunctionDef)  # type: ignore[return-value]


def _imports(tree: ast.AST, name: str, is_package: bool) -> Iterator[Import]:
    def visit(node: ast.AST, in_function: bool, typing_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typed = typing_only or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            for target in _targets(child, name, is_package):
                yield Import(target, child.lineno, in_function, typing_only)  # type: ignore[attr-defined]
            yield from visit(child, inside, typed)

    yield from visit(tree, False, False)


def _targets(node: ast.AST, name: str, is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = name.split(".") if is_package else name.split(".")[:-1]
            parent = parts[: len(parts) - node.level + 1]
            base = ".".join([*parent, base] if base else parent)
        return [f"{base}.{alias.name}" for alias in node.names]
    hidden = isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "__import__",
        "import_module",
        "importlib.import_module",
    }
    if hidden and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
        return [node.args[0].value]
    return []


class Tree:
    """All modules below a folder that holds a package named `isthmus`."""

    def __init__(self, package: Path = SRC) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(name, path)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules.values())

    def resolve(self, target: str) -> str | None:
        """The module of this tree that an import names, or None for somebody else's."""
        while target:
            if target in self.modules:
                return target
            target = target.rpartition(".")[0]
        return None
