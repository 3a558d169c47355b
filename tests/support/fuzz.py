"""Coverage-guided fuzzing of the decoders and the readers: libFuzzer by atheris, its changes made for the formats."""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["isthmus.wire", "isthmus.adapters", "isthmus.models"]):
    import isthmus.adapters.anthropic.adapter
    import isthmus.adapters.bedrock.adapter
    import isthmus.adapters.langserve.adapter
    import isthmus.adapters.openai_chat.adapter
    import isthmus.adapters.openai_responses.adapter  # noqa: F401
    from isthmus.models.fold import classify

from isthmus.wire.call import Ended
from support import floods, fuzzing
from support.corpus import corpus_root, rows

_ENDS = tuple(Ended)
_APIS = {"openai": "openai-chat", "anthropic": "anthropic-messages", "openai-responses": "openai-responses"}
_ALL = tuple(fuzzing.SETTINGS)
_LONGEST = 30_000


def one(data: bytes) -> None:
    """One run: three bytes say which decoder and how, the rest is what it gets."""
    if len(data) < 3:
        return
    way, size, body = data[0], data[2] % 32, data[3:]
    if way % 8 == 0:
        fuzzing.check_readers(body, max(1, size))
        return
    provider, kind = _ALL[way % len(_ALL)], fuzzing.KINDS[(data[1] >> 2) % 3]
    # Short pieces of long bodies take long, and find nothing more.
    size = size if len(body) < 20_000 else size * 997
    fuzzing.run(fuzzing.check_decoder, provider, body, size=size, kind=kind, ended=_ENDS[data[1] % 3])


def changed(data: bytes, most: int, seed: int) -> bytes:
    """An input made from another."""
    chance = random.Random(seed)
    if len(data) < 4 or chance.random() < 0.3:
        return bytes(atheris.Mutate(data, len(data) + 64))[:most]
    head = bytearray(data[:3])
    if chance.random() < 0.3:
        head[chance.randrange(3)] = chance.randrange(256)
    return (bytes(head) + fuzzing.worse(data[3:], chance))[:most]


def _sow(folder: Path, chance: random.Random) -> None:
    root = corpus_root()
    for place, provider in enumerate(_ALL):
        bodies = [*fuzzing.seeds(provider)]
        found = rows(_APIS[provider]) if provider in _APIS else []
        for row in chance.sample(found, min(60, len(found))):
            file = root / row.path / "response.body" if root else Path()
            bodies += [file.read_bytes()] if file.is_file() and file.stat().st_size < 20_000 else []
        for body in bodies:
            for kind in (0, 4):
                way = next(number for number in range(1, 256) if number % len(_ALL) == place and number % 8)
                data = bytes([way, kind, chance.randrange(32)]) + body
                (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def main() -> None:
    """Flood the decoders, then fuzz them for some seconds; print peak memory. A finding ends it with status 77."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--memory", type=int, default=1024, help="the most memory, in MiB")
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()), help="where findings are kept")
    parser.add_argument("inputs", nargs="*", help="files to run once, instead of fuzzing")
    options = parser.parse_args()
    if options.inputs:
        for name in options.inputs:
            one(Path(name).read_bytes())
        return
    for name, provider, outcome, peak in floods.all_of():
        print(f"flood {name} at {provider}: {classify(outcome).error_class}, {peak / 2**20:.1f} MiB", flush=True)
    seed = options.seed or int(time.time())
    with tempfile.TemporaryDirectory() as scratch:
        _sow(Path(scratch), random.Random(seed))
        flags = [
            f"-max_total_time={options.seconds}",
            f"-seed={seed}",
            f"-rss_limit_mb={options.memory}",
            f"-max_len={_LONGEST}",
            "-timeout=20",
            "-print_final_stats=1",
            "-len_control=0",
            f"-artifact_prefix={options.findings}/",
        ]
        known: dict[str, Any] = {"custom_mutator": changed}
        atheris.Setup([sys.argv[0], *flags, scratch], one, **known)
        print(f"seed {seed}, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB before", flush=True)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
