from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import pytest

import isthmus
from support.homes import Home, enter_home

HEAVY = ("aiohttp", "msgspec", "pydantic", "jinja2", "rich", "click", "openai", "anthropic", "xllamacpp", "asyncio")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own; its working folder is the current one."""
    return enter_home(tmp_path, monkeypatch)


def loaded(home: Home, code: str) -> set[str]:
    """The modules that a new process holds after running some code."""
    done = home.run("-c", f"{code}\nimport sys\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy(home: Home) -> None:
    """F31: `import isthmus` loads no adapter, no SDK, no HTTP client, nor any other module of weight."""
    before = loaded(home, "pass")
    added = loaded(home, "import isthmus") - before
    assert {name for name in added if name.split(".")[0] == "isthmus"} == {"isthmus", "isthmus.version"}
    assert not {name.split(".")[0] for name in added} & set(HEAVY)


def test_help_loads_no_adapter_and_no_client(home: Home) -> None:
    """F31: `isthmus --help` loads the command line and nothing that a subcommand needs."""
    code = "import sys\nfrom isthmus.console.main import run\nassert run(['--help']) == 0"
    added = loaded(home, code)
    assert not {"aiohttp", "pydantic", "msgspec", "rich", "jinja2", "isthmus.build", "isthmus.adapters"} & added
    assert "click" in added


@pytest.mark.parametrize("name", isthmus.__all__)
def test_every_name_of_the_door_is_there(name: str) -> None:
    """Each name in `__all__` can be had and is listed by `dir`."""
    assert getattr(isthmus, name) is not None
    assert name in dir(isthmus)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that is not there is reported like in any module."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        isthmus.nonsense  # noqa: B018


def test_types_are_visible() -> None:
    """Type checkers see the same names that the door hands out at run time."""
    source = inspect.getsource(isthmus)
    for name in isthmus.__all__:
        assert source.count(name) >= 2


def test_the_wire_log_is_one_switch(home: Home) -> None:
    """`ISTHMUS_LOG` starts the log at import; a value that says nothing is reported and does no harm."""
    probe = "import isthmus, logging; print(logging.getLogger('isthmus').level)"
    assert home.run("-c", probe, env={"ISTHMUS_LOG": "wire"}).stdout.strip() == "10"
    assert home.run("-c", probe, env={"ISTHMUS_LOG": "info"}).stdout.strip() == "20"
    odd = home.run("-c", probe, env={"ISTHMUS_LOG": "loud"})
    assert odd.stdout.strip() == "0"
    assert "info, debug, wire" in odd.stderr


def test_the_version_is_the_one_of_the_distribution() -> None:
    """The door, the command and the project file say the same version."""
    project = Path(__file__).resolve().parents[1] / "pyproject.toml"
    assert f'version = "{isthmus.__version__}"' in project.read_text()
    assert sys.modules["isthmus.version"].__version__ == isthmus.__version__


def test_no_name_of_a_door_is_that_of_a_module_behind_it() -> None:
    """A module that is imported takes its name in its package: a function of that name would be gone."""
    doors = [info.name for info in pkgutil.walk_packages(isthmus.__path__, "isthmus.") if info.ispkg]
    assert "isthmus.conformance" in doors
    for name in doors:
        door = importlib.import_module(name)
        behind = {info.name for info in pkgutil.iter_modules(door.__path__)}
        assert not behind & set(getattr(door, "__all__", ())), name
