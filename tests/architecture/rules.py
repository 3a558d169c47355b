"""The house rules, each a function from a source tree to the offences it holds."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from statistics import median, quantiles

from architecture import allowed
from architecture.source import Module, Tree

Rule = Callable[[Tree], list[str]]


def _at(module: Module, line: int, what: str) -> str:
    return f"{module.name}:{line}: {what}"


def ranks(tree: Tree) -> list[str]:
    """Modules import only what their rank may see."""
    found = []
    for module in tree:
        for item in module.imports:
            target = tree.resolve(item.target)
            if target and target != module.name and not allowed.may_import(module.name, target):
                found.append(_at(module, item.line, f"{allowed.place(module.name)} may not import {target}"))
    return found


def cycles(tree: Tree) -> list[str]:
    """No import cycle, hidden and type-only imports counted; a package's door may name its own modules."""
    graph: dict[str, set[str]] = {}
    for module in tree:
        targets = {tree.resolve(item.target) for item in module.imports}
        is_door = module.path.name == "__init__.py"
        graph[module.name] = {
            t for t in targets if t and t != module.name and not (is_door and t.startswith(module.name + "."))
        }
    return [" -> ".join(cycle) for cycle in _cycles(graph)]


def _cycles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    state: dict[str, int] = {}

    def visit(node: str, path: list[str]) -> Iterator[list[str]]:
        state[node] = 1
        for target in sorted(graph.get(node, ())):
            if state.get(target) == 1:
                yield [*path[path.index(target) :], target] if target in path else [node, target]
            elif target not in state:
                yield from visit(target, [*path, target])
        state[node] = 2

    for node in sorted(graph):
        if node not in state:
            yield from visit(node, [node])


def hidden_imports(tree: Tree) -> list[str]:
    """First-party imports stand at the top, save in the registry, the composition root, command dispatch and doors."""
    return [
        _at(module, item.line, f"first-party import of {item.target} inside a function")
        for module in tree
        for item in module.imports
        if item.in_function and tree.resolve(item.target) and not allowed.may_hide_imports(module)
    ]


def third_party(tree: Tree) -> list[str]:
    """Third-party libraries are imported only where they are pinned to."""
    found = []
    for module in tree:
        for item in module.imports:
            top = item.target.split(".")[0]
            if top in sys.stdlib_module_names or tree.resolve(item.target) or top == "isthmus":
                continue
            if not allowed.may_use(module.name, top):
                found.append(_at(module, item.line, f"{top} is not to be imported here"))
    return found


def module_length(tree: Tree) -> list[str]:
    """Modules have at most 400 lines, adapters 450."""
    found = []
    for module in tree:
        limit = 450 if module.name.startswith("isthmus.adapters.") else 400
        if module.lines > limit:
            found.append(_at(module, module.lines, f"{module.lines} lines, limit {limit}"))
    return found


def module_median(tree: Tree) -> list[str]:
    """Half of all modules, doors left out, have at most 170 lines."""
    sizes = [module.lines for module in tree if module.path.name != "__init__.py"]
    middle = median(sizes) if sizes else 0
    return [f"the median module has {middle} lines, limit 170"] if middle > 170 else []


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body
    docstring = 0
    if body and isinstance(body[0], ast.Expr) and isinstance(getattr(body[0], "value", None), ast.Constant):
        docstring = (body[0].end_lineno or 0) - body[0].lineno + 1
    return (node.end_lineno or node.lineno) - node.lineno + 1 - docstring


def function_length(tree: Tree) -> list[str]:
    """Functions have at most 60 lines, docstring left out."""
    return [
        _at(module, node.lineno, f"{node.name} has {_length(node)} lines, limit 60")
        for module in tree
        for node in module.functions
        if _length(node) > 60
    ]


def function_p95(tree: Tree) -> list[str]:
    """19 of 20 functions have at most 40 lines."""
    sizes = [_length(node) for module in tree for node in module.functions]
    at95 = quantiles(sizes, n=20)[-1] if len(sizes) > 1 else 0
    return [f"the 95th percentile of function lengths is {at95}, limit 40"] if at95 > 40 else []


def parameters(tree: Tree) -> list[str]:
    """Functions take at most 7 parameters, keyword-only after the second; listed signatures excepted."""
    found = []
    for module in tree:
        for node in module.functions:
            args = node.args
            positional = [a.arg for a in (*args.posonlyargs, *args.args) if a.arg not in {"self", "cls"}]
            count = len(positional) + len(args.kwonlyargs)
            if f"{module.name}:{node.name}" in allowed.SIGNATURES or _fixed_constructor(module, node):
                continue
            if count > 7:
                found.append(_at(module, node.lineno, f"{node.name} takes {count} parameters, limit 7"))
            if len(positional) > 2 and _public(node.name) and not _of_private_class(module, node):
                found.append(_at(module, node.lineno, f"{node.name}: {positional[2]} must be keyword-only"))
    return found


def _public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def _of_private_class(module: Module, node: ast.AST) -> bool:
    owners = [owner for owner in module.walk(ast.ClassDef) if node in owner.body]  # type: ignore[attr-defined]
    return any(owner.name.startswith("_") for owner in owners)  # type: ignore[attr-defined]


def _fixed_constructor(module: Module, node: ast.AST) -> bool:
    if getattr(node, "name", "") != "__init__":
        return False
    owners = [owner for owner in module.walk(ast.ClassDef) if node in owner.body]  # type: ignore[attr-defined]
    return any(owner.name in allowed.CONSTRUCTORS for owner in owners)  # type: ignore[attr-defined]


def arms(tree: Tree) -> list[str]:
    """An if/elif ladder has at most 5 arms."""
    found = []
    for module in tree:
        for node in module.walk(ast.If):
            count, here = 1, node
            while len(here.orelse) == 1 and isinstance(here.orelse[0], ast.If):  # type: ignore[attr-defined]
                here = here.orelse[0]  # type: ignore[attr-defined]
                count += 1
            if count > 5:
                found.append(_at(module, node.lineno, f"a ladder of {count} arms, limit 5"))  # type: ignore[attr-defined]
    return found


def inheritance(tree: Tree) -> list[str]:
    """A class has at most one in-repo base besides ModelAdapter and Tool (errors four), protocols left out."""
    bases: dict[str, list[str]] = {}
    homes: dict[str, Module] = {}
    for module in tree:
        for node in module.walk(ast.ClassDef):
            bases[node.name] = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]  # type: ignore[attr-defined]
            homes[node.name] = module  # type: ignore[attr-defined]

    def ancestors(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        own = {b for b in bases.get(name, []) if b in bases and b not in seen and not b.startswith("_")}
        return own.union(*(ancestors(base, seen | own) for base in own)) if own else own

    found = []
    for name, module in homes.items():
        depth = len(ancestors(name) - {"ModelAdapter", "Tool", "ToolSpec"})
        limit = 4 if module.name == "isthmus.errors" else 1
        if depth > limit:
            found.append(f"{module.name}: {name} has {depth} in-repo bases, limit {limit}")
    return found


def public_names(tree: Tree) -> list[str]:
    """A module offers at most 12 public names; errors and doors excepted."""
    found = []
    for module in tree:
        if module.path.name == "__init__.py" or module.name in allowed.MANY_NAMES:
            continue
        names = {
            node.name
            for node in module.tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        }
        if len(names) > 12:
            found.append(_at(module, 1, f"{len(names)} public names, limit 12"))
    return found


def broad_excepts(tree: Tree) -> list[str]:
    """`except Exception` stands only at the listed boundaries; a bare `except` nowhere."""
    found = []
    for module in tree:
        for node in module.walk(ast.ExceptHandler, ast.With, ast.AsyncWith):
            for what in _caught(node):
                if what in {"Exception", "BaseException"} and module.name not in allowed.BOUNDARIES:
                    found.append(_at(module, node.lineno, f"catches {what}"))  # type: ignore[attr-defined]
                if what == "":
                    found.append(_at(module, node.lineno, "bare except"))  # type: ignore[attr-defined]
    return found


def _caught(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ExceptHandler):
        if node.type is None:
            return [""]
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        return [ast.unparse(kind) for kind in kinds]
    calls = [item.context_expr for item in node.items]  # type: ignore[attr-defined]
    return [
        ast.unparse(arg)
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress")
        for arg in call.args
    ]


def provider_names(tree: Tree) -> list[str]:
    """No provider's name stands outside its own file and the listed data modules."""
    found = []
    for module in tree:
        docstrings = {id(owner.value) for owner in module.walk(ast.Expr)}  # type: ignore[attr-defined]
        for node in module.walk(ast.Constant):
            value = node.value  # type: ignore[attr-defined]
            if not isinstance(value, str) or id(node) in docstrings:
                continue
            for name in allowed.PROVIDERS:
                if name in value.lower() and not allowed.may_name(module.name, name):
                    found.append(_at(module, node.lineno, f"names the provider {name!r}"))  # type: ignore[attr-defined]
    return found


def all_lists(tree: Tree) -> list[str]:
    """Where a module has `__all__`, it names what exists, each once, in order."""
    found = []
    for module in tree:
        for node in module.tree.body:
            if (
                isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "__all__"
                and isinstance(node.value, ast.List)
            ):
                names = [ast.literal_eval(item) for item in node.value.elts if isinstance(item, ast.Constant)]
                constants_first = sorted(set(names), key=lambda name: (not name.isupper(), name))
                if names not in (sorted(set(names), key=str.casefold), sorted(set(names)), constants_first):
                    found.append(_at(module, node.lineno, "__all__ is not sorted or repeats a name"))
    return found


def asserts(tree: Tree) -> list[str]:
    """No check is an `assert`: `python -O` must change nothing."""
    return [_at(module, node.lineno, "assert") for module in tree for node in module.walk(ast.Assert)]  # type: ignore[attr-defined]
