"""What a streamed Bedrock reply costs here and in botocore: frames a second of CPU, as ratios measured in one run.

Both read the same bytes of a Converse stream, in the pieces of a socket. Prints medians of alternating rounds; exits 1
when a wanted ratio is missed.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from statistics import median

import botocore.session
from botocore.eventstream import EventStreamBuffer
from botocore.parsers import create_parser

from isthmus.adapters.bedrock.sniff import BedrockDecoder
from isthmus.wire.eventstream import EventStreamParser

FRAMES = 4000
PIECE = 16_384
ROUNDS = 7
# Frames alone, and frames as events with their payload decoded.
WANTED = {"framing": 4.0, "events": 5.0}


def message(event: str, value: object) -> bytes:
    """One message, as AWS sends it."""
    headers = {":event-type": event, ":content-type": "application/json", ":message-type": "event"}
    packed = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
        for name, text in headers.items()
    )
    body = json.dumps(value).encode()
    prelude = struct.pack(">II", 16 + len(packed) + len(body), len(packed))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    return prelude + packed + body + struct.pack(">I", zlib.crc32(prelude + packed + body))


def pieces() -> list[bytes]:
    """A whole reply in the pieces of a socket."""
    words = [
        message(
            "contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": f" word{n}"}, "p": "abcdefghij"[: n % 10]}
        )
        for n in range(FRAMES)
    ]
    end = [
        message("contentBlockStop", {"contentBlockIndex": 0}),
        message("messageStop", {"stopReason": "end_turn"}),
        message("metadata", {"usage": {"inputTokens": 1, "outputTokens": FRAMES, "totalTokens": FRAMES + 1}}),
    ]
    body = b"".join([message("messageStart", {"role": "assistant"}), *words, *end])
    return [body[at : at + PIECE] for at in range(0, len(body), PIECE)]


def our_framing(data: list[bytes]) -> int:
    parser = EventStreamParser()
    return sum(len(parser.feed(piece)) for piece in data)


def their_framing(data: list[bytes]) -> int:
    buffer, seen = EventStreamBuffer(), 0
    for piece in data:
        buffer.add_data(piece)
        seen += sum(1 for _ in buffer)
    return seen


def our_events(data: list[bytes]) -> int:
    parser, decoder, seen = EventStreamParser(), BedrockDecoder(whole=False, names={}), 0
    for piece in data:
        for frame in parser.feed(piece):
            seen += 1
            for _ in decoder.feed(frame):
                pass
    return seen


class Body(io.BytesIO):
    def stream(self) -> Iterator[bytes]:
        while data := self.read(PIECE):
            yield data


def their_events(data: list[bytes]) -> int:
    reply = {
        "status_code": 200,
        "headers": {},
        "body": Body(b"".join(data)),
        "context": {"operation_name": OPERATION.name},
    }
    return sum(1 for _ in create_parser("rest-json").parse(reply, OPERATION.output_shape)["stream"])


OPERATION = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("ConverseStream")


def rate(read: Callable[[list[bytes]], int], data: list[bytes]) -> float:
    """Frames a second of CPU."""
    start = time.process_time()
    seen = read(data)
    assert seen == FRAMES + 4, seen
    return seen / (time.process_time() - start)


def main() -> int:
    """Measure, print, and say whether what is wanted holds."""
    data, missed = pieces(), 0
    for what, ours, theirs in (("framing", our_framing, their_framing), ("events", our_events, their_events)):
        rounds = [(rate(ours, data), rate(theirs, data)) for _ in range(ROUNDS)]
        ratio = median(one / other for one, other in rounds)
        good = ratio >= WANTED[what]
        missed += not good
        print(f"{what:<8} ours {median(one for one, _ in rounds):>10,.0f} frames/s", end="")
        print(f"   botocore {median(other for _, other in rounds):>9,.0f}", end="")
        print(f"   {'ok  ' if good else 'MISS'} {ratio:.1f}x (wanted {WANTED[what]:g}x)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
