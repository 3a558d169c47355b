"""Which files in working folders a person has read and accepted."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from isthmus.errors import ConfigError

# The time that some texts take to be read grows with the square of their length.
_MOST_BYTES = 16_384
# A pipe is opened without waiting for a writer.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_regular(path: Path) -> bytes | None:
    """The bytes of a plain file, or None where there is none.

    Raises:
        ConfigError: it is a folder, a link, a pipe or a device, is larger than 16 KiB, or cannot be read.
    """
    try:
        if path.is_symlink():
            raise ConfigError(
                "is a symbolic link, which is not followed here: put the file itself in its place, "
                "or name its target in ISTHMUS_CONFIG",
                where=str(path),
            )
        # What is looked at is what is read: the name may come to stand for something else in between.
        with os.fdopen(os.open(path, _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError("is not a plain file: remove it or give it another name", where=str(path))
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise ConfigError("is not a plain file: remove it or give it another name", where=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"has more than {_MOST_BYTES} bytes, which no configuration needs", where=str(path))
    return content


class TrustStore:
    """The accepted files, each with the hash of the content that was accepted.

    Args:
        path: where they are kept, readable and writable by their owner alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def _load(self) -> dict[str, str]:
        try:
            held = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(held, dict):
            return {}
        return {key: value for key, value in held.items() if isinstance(value, str)}

    def _save(self, held: dict[str, str]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(held, file, indent=1, sort_keys=True)
                Path(name).replace(self.path)
            finally:
                with suppress(OSError):
                    Path(name).unlink()
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", where=str(self.path)) from error

    def accepts(self, file: Path, content: bytes) -> bool:
        """Whether this very content was accepted at this very place."""
        return self._load().get(str(file.resolve())) == sha256(content).hexdigest()

    def knows(self, file: Path) -> bool:
        """Whether any content was accepted at this place."""
        return str(file.resolve()) in self._load()

    def accept(self, file: Path, content: bytes) -> str:
        """Accept the content; returns its hash.

        Raises:
            ConfigError: the list cannot be written.
        """
        digest = sha256(content).hexdigest()
        self._save({**self._load(), str(file.resolve()): digest})
        return digest

    def forget(self, file: Path) -> bool:
        """Take it back; returns whether it had been accepted."""
        held = self._load()
        if held.pop(str(file.resolve()), None) is None:
            return False
        self._save(held)
        return True
