"""The door of the models layer."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

from isthmus import models
from support.homes import SRC


@pytest.mark.parametrize("name", models.__all__)
def test_each_name_is_behind_the_door(name: str) -> None:
    """Every name that is listed can be had, and is shown by `dir`."""
    assert getattr(models, name) is not None
    assert name in dir(models)


def test_a_name_that_is_not_there_is_reported() -> None:
    """An unknown name is an AttributeError that says so."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        models.nonsense  # noqa: B018


def test_the_run_helpers_have_a_module_of_their_own() -> None:
    """`isthmus.models.run` holds the context and the trace manager."""
    run = import_module("isthmus.models.run")
    for name in ("RunContext", "DefaultRunContext", "TraceCtxManager"):
        assert getattr(run, name).__module__ == "isthmus.models.run"


def _loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(SRC), "ISTHMUS_LOG": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_the_door_loads_nothing_of_weight() -> None:
    """F31: the door is lazy, and a reply, its accessors and a config need neither pydantic nor an HTTP client."""
    heavy = {"pydantic", "jinja2", "aiohttp", "openai", "anthropic", "msgspec"}
    assert not _loaded("import isthmus.models") & {*heavy, "isthmus.models.responses"}
    code = "from isthmus.models import Config, Model, ModelResponse, get_usage_totals, retry_on_errors, RateLimiter"
    assert not _loaded(code) & (heavy - {"msgspec"})
    assert not {name for name in _loaded(code) if name.startswith("isthmus.adapters")}


def test_importing_the_door_is_fast() -> None:
    """F31: `import isthmus.models` costs at most 80 ms of CPU above a bare interpreter, the best of three."""
    code = "import time; a = time.process_time(); import isthmus.models; print(time.process_time() - a)"
    env = {**os.environ, "PYTHONPATH": str(SRC), "ISTHMUS_LOG": ""}
    spent = [
        float(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(spent) < 0.08
