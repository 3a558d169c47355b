"""Tests mirror the package and state their claims."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from architecture.source import ROOT, SRC

TESTS = ROOT / "tests"
# Folders of tests that belong to no one module.
FREE = {"architecture", "live", "support", "typing", "recordings", "acceptance"}


def _test_files() -> Iterator[Path]:
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.relative_to(TESTS).parts[0] not in FREE:
            yield path


def test_each_test_file_mirrors_a_module() -> None:
    """A test file stands where its module stands, named after it, its package, or a part of it."""
    strays = []
    for path in _test_files():
        inner = path.relative_to(TESTS)
        folder, stem = SRC / inner.parent, inner.stem.removeprefix("test_")
        homes = [folder / f"{stem}.py", folder / stem / "__init__.py", (SRC / inner.parent).with_suffix(".py")]
        parts = stem.split("_")
        homes += [folder / f"{'_'.join(parts[:count])}.py" for count in range(1, len(parts))]
        if not any(home.exists() for home in homes) and not (folder / "__init__.py").exists():
            strays.append(str(inner))
    assert not strays, f"no such module or package: {strays}"


def test_each_module_has_tests() -> None:
    """Every module of some weight has a test file in the folder that mirrors its own."""
    missing = []
    for path in sorted(SRC.rglob("*.py")):
        inner = path.relative_to(SRC)
        if path.name in {"__init__.py", "__main__.py"}:
            continue
        near = list((TESTS / inner.parent).glob("test_*.py"))
        package_tests = (
            list((TESTS / inner.parent.parent).glob(f"test_{inner.parent.name}*.py")) if inner.parent.parts else []
        )
        if not near and not package_tests:
            missing.append(str(inner))
    assert not missing, f"modules without tests beside them: {missing}"


def test_each_test_states_its_claim() -> None:
    """Every test function has a docstring of one sentence."""
    silent = []
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            if is_test and not ast.get_docstring(node):
                silent.append(f"{path.relative_to(TESTS)}:{node.lineno} {node.name}")
    assert not silent, "tests without a claim:\n" + "\n".join(silent)


def test_scripts_are_short() -> None:
    """The scripts of the daily round have at most 20 lines, their set-up at most 40."""
    long = {
        path.name: len(path.read_text().splitlines())
        for path in (ROOT / "scripts").iterdir()
        if path.name in {"run", "test", "check", "fix", "bench", "docs"} and len(path.read_text().splitlines()) > 20
    }
    assert not long


def test_no_committed_file_names_a_registry() -> None:
    """No file of the project holds the address of a package registry or a download host."""
    needles = [
        "py" + "pi.org",
        "pythonhosted" + ".org",
        "npmjs" + ".org",
        "deb.debian" + ".org",
        "huggingface" + ".co/",
    ]
    found = []
    for path in ROOT.rglob("*"):
        inner = path.relative_to(ROOT)
        if not path.is_file() or (inner.parts[0].startswith(".") and inner.parts[0] not in {".ci"}):
            continue
        if path.suffix in {".pyc", ".lock"} or "__pycache__" in inner.parts:
            continue
        text = path.read_bytes()
        found += [f"{inner}: {needle}" for needle in needles if needle.encode() in text]
    assert not found
