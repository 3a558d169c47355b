"""Server-sent events."""

from __future__ import annotations

from isthmus.wire.frame import Frame


class SSEParser:
    """To be written."""

    def feed(self, data: bytes) -> list[Frame]:
        """Frames completed by these bytes."""
        raise NotImplementedError

    def close(self) -> list[Frame]:
        """What is left."""
        raise NotImplementedError
