"""Where a mutant is run: a forked process in which only what it changes, and what depends on that, is loaded anew."""

from __future__ import annotations

import ast
import asyncio
import gc
import importlib
import importlib.abc
import importlib.util
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import isthmus
from support import rare, tapes

ROOT = Path(__file__).resolve().parents[2]
FRAMES = ROOT / "tests" / "recordings" / "rare"
SURVIVED, HUNG = "survived", "hung"
SECONDS = 20
_OPTIONAL = ("isthmus.studio", "isthmus.console", "isthmus.bulk", "isthmus.adapters.litellm", "isthmus.adapters.local")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the mutant in place of its module."""

    def __init__(self, mutant: Any) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.source, module.__name__, "exec"), module.__dict__)


def _loaded() -> dict[str, set[str]]:
    """Load the library, and say which of its modules imports which."""
    for found in pkgutil.walk_packages(isthmus.__path__, "isthmus."):
        if not found.name.startswith(_OPTIONAL) and not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ImportError:
                continue
    needs: dict[str, set[str]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not name.startswith(("isthmus", "support.")) or not file:
            continue
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
                needs.setdefault(name, set()).update(names)
    return needs


def _forget(module: str, needs: Mapping[str, set[str]]) -> None:
    """Unload a module and all that has something of it."""
    gone, more = set[str](), {module}
    while more:
        gone |= more
        more = {name for name, wants in needs.items() if wants & gone} - gone
    for name in gone:
        left = sys.modules.pop(name, None)
        package, _, own = name.rpartition(".")
        if left is not None and getattr(sys.modules.get(package), own, None) is left:
            delattr(sys.modules[package], own)


class Bench:
    """Runs the mutants of one decoder.

    Args:
        judge: a provider's name, or the name of a reader of bytes.
        settings: what the provider's adapter needs.
        folder: the recordings that it is judged by.
    """

    def __init__(self, judge: str, settings: Mapping[str, Any], folder: Path) -> None:
        self._judge, self._settings, self._folder = judge, settings, folder
        self._own = rare.unpacked(f"{judge}-own") if (FRAMES / f"{judge}-own.jsonl").is_file() else None
        self._needs = _loaded()
        self._variants: Any = None
        gc.collect()
        gc.freeze()

    def run(self, mutant: Any, *, search: Path | None = None) -> str:
        """The law that finds a mutant (None is the unchanged decoder), or "survived", or "hung".

        Args:
            mutant: the mutant.
            search: a folder; a changed recording that tells a survivor from the unchanged decoder is written into it,
                and judges the mutants after it.
        """
        if search is not None and self._variants is None:
            self._variants = json.loads(self._forked(None, "expect"))
            self._extra = search / self._judge
        end = self._forked(mutant, "judge" if mutant is not None else "judge all")
        if search is None or mutant is None or end != SURVIVED:
            return end
        found = self._forked(mutant, "search")
        if found.isdigit():
            # What shows one mutant shows others: it judges from now on.
            self._forked(None, f"write {found}")
            return f"changed recording {found}"
        return end

    def _forked(self, mutant: Any, task: str) -> str:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            self._child(mutant, task, theirs)
        os.close(theirs)
        with os.fdopen(ours, encoding="utf-8") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        return HUNG if os.WIFSIGNALED(status) else said

    def _child(self, mutant: Any, task: str, theirs: int) -> None:
        # Of its own time, whatever else the machine does; one that waits for nothing is given up later.
        signal.setitimer(signal.ITIMER_PROF, SECONDS if mutant is not None else 600)
        signal.alarm(600)
        keep = os.environ.get("ISTHMUS_MUTANTS_LOUD")
        if not keep:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        said = "import"
        try:
            if mutant is not None:
                _forget(mutant.module, self._needs)
                sys.meta_path.insert(0, _Finder(mutant))
            said = self._told(task)
        except BaseException as error:
            said = f"{type(error).__name__} {error}" if mutant is None else "import"
            if keep:
                raise
        finally:
            with os.fdopen(theirs, "w", encoding="utf-8") as pipe:
                pipe.write(said)
            os._exit(0)

    def _told(self, task: str) -> str:
        from support import mutant_judges

        folders = [self._folder]
        extra = getattr(self, "_extra", None)
        if extra is not None and extra.is_dir():
            folders.append(extra)
        judge = mutant_judges.judge_of(self._judge, self._settings, few=1 if task == "judge all" else mutant_judges.FEW)
        if task.startswith("judge"):
            return asyncio.run(judge.broken(folders, self._own)) or SURVIVED
        variants = tapes.variants(folders[0])
        if task == "expect":
            return json.dumps([asyncio.run(judge.said(variant)) for variant in variants])
        if task == "search":
            return asyncio.run(self._first(judge, variants))
        number = int(task.removeprefix("write "))
        tapes.write(variants[number], extra / f"{len(list(extra.glob('*'))):03}", self._variants[number])
        return ""

    async def _first(self, judge: Any, variants: Any) -> str:
        for number, variant in enumerate(variants):
            if await judge.said(variant) != self._variants[number]:
                return str(number)
        return SURVIVED
