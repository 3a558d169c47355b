"""An adapter whose author reads outputs in his own way: what an output says under `mine` is what he makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.adapters.langserve import LangServeAdapter


class OwnReading(LangServeAdapter):
    """Takes `mine` as text, calls and usage where an output has it, and leaves the rest as it was."""

    def _parse_output(self, output: Any) -> Any:
        text, calls, usage = super()._parse_output(output)
        if not isinstance(output, Mapping) or "mine" not in output:
            return text, calls, usage
        mine = output["mine"]
        if not isinstance(mine, Mapping):
            return mine
        kept = [call for call in calls if call.name not in mine.get("without", ())]
        kept = [call for call in kept if isinstance(call.input, dict)] if mine.get("sound") else kept
        return mine.get("text", text), [*kept, *mine.get("calls", ())], mine.get("usage", usage)


READINGS: Mapping[str, Any] = {"langserve": OwnReading}
