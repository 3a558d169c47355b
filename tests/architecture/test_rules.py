"""The house rules hold, and each is shown to fail on a planted offence."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture import rules
from architecture.source import SRC, Tree

_LONG = "def f():\n" + "    x = 1\n" * 61
_LADDER = "if a:\n    pass\n" + "elif b:\n    pass\n" * 5

# rule, path of the planted module, its text
PLANTED: list[tuple[rules.Rule, str, str]] = [
    (rules.ranks, "models/bad.py", "from isthmus.transport import http\n"),
    (rules.ranks, "chain/bad.py", "def f():\n    from isthmus.adapters import drive\n"),
    (rules.ranks, "harness/bad.py", "from isthmus import conformance\n"),
    (rules.ranks, "wire/bad.py", "import importlib\nimportlib.import_module('isthmus.models.events')\n"),
    (
        rules.ranks,
        "transport/bad.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import isthmus.adapters.base\n",
    ),
    (rules.ranks, "adapters/bad.py", "from ..chain import chain\n"),
    (rules.cycles, "models/bad.py", "def f():\n    import isthmus.models.bad2\n"),
    (rules.hidden_imports, "models/bad.py", "def f():\n    from isthmus.models import events\n"),
    (rules.third_party, "models/bad.py", "import aiohttp\n"),
    (rules.third_party, "errors.py", "import msgspec\n"),
    (rules.module_length, "models/bad.py", "x = 1\n" * 401),
    (rules.function_length, "models/bad.py", _LONG),
    (rules.parameters, "models/bad.py", "def f(a, b, *, c, d, e, f, g, h): ...\n"),
    (rules.parameters, "models/bad.py", "def f(a, b, c=1): ...\n"),
    (rules.arms, "models/bad.py", _LADDER),
    (rules.inheritance, "models/bad.py", "class A: ...\nclass B(A): ...\nclass C(B): ...\n"),
    (rules.public_names, "models/bad.py", "".join(f"def f{i}(): ...\n" for i in range(13))),
    (rules.broad_excepts, "models/bad.py", "try:\n    pass\nexcept Exception:\n    pass\n"),
    (rules.broad_excepts, "models/bad.py", "try:\n    pass\nexcept:\n    pass\n"),
    (rules.broad_excepts, "models/bad.py", "from contextlib import suppress\nwith suppress(Exception):\n    pass\n"),
    (rules.provider_names, "models/bad.py", "x = 'anthropic'\n"),
    (rules.all_lists, "models/bad.py", "__all__ = ['b', 'a']\n"),
    (rules.asserts, "models/bad.py", "assert True\n"),
]

EVERY_RULE = sorted(
    {rule for rule, _, _ in PLANTED} | {rules.module_median, rules.function_p95}, key=lambda r: r.__name__
)


@pytest.fixture(scope="module")
def real() -> Tree:
    """The project's own source tree, read once."""
    return Tree(SRC)


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: rules.Rule, real: Tree) -> None:
    """The rule holds for the whole package."""
    offences = rule(real)
    assert not offences, f"{rule.__doc__}\n" + "\n".join(offences)


@pytest.mark.parametrize(("rule", "where", "text"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_rule_fails_on_a_planted_offence(rule: rules.Rule, where: str, text: str, tmp_path: Path) -> None:
    """The rule finds an offence planted in an otherwise empty package."""
    package = tmp_path / "isthmus"
    for known in ("transport/http.py", "adapters/base.py", "adapters/drive.py", "chain/chain.py", "models/events.py"):
        (package / known).parent.mkdir(parents=True, exist_ok=True)
        (package / known).write_text("")
    (package / "conformance.py").write_text("")
    bad2 = package / "models" / "bad2.py"
    bad2.write_text("import isthmus.models.bad\n" if rule is rules.cycles else "")
    target = package / where
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    assert rule(Tree(package)), "the planted offence was not found"


def test_the_median_rule_fails_on_long_modules(tmp_path: Path) -> None:
    """A package of long modules breaks the rule of the median."""
    package = tmp_path / "isthmus"
    package.mkdir()
    (package / "long.py").write_text("x = 1\n" * 171)
    assert rules.module_median(Tree(package))


def test_the_percentile_rule_fails_on_long_functions(tmp_path: Path) -> None:
    """A package of long functions breaks the rule of the 95th percentile."""
    package = tmp_path / "isthmus"
    package.mkdir()
    body = "    x = 1\n" * 45
    (package / "long.py").write_text("".join(f"def f{i}():\n{body}" for i in range(4)))
    assert rules.function_p95(Tree(package))
