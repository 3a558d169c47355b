"""Names and ids that this API accepts, made from any others so that they can be told back."""

from __future__ import annotations

import re
from hashlib import sha256

from isthmus.models.dialects import legal_name

SCHEMAS = "anthropic"
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")


def wire_name(name: str) -> str:
    """A tool's name as it can be sent; the same name always gives the same result."""
    return legal_name(name, dialect=SCHEMAS)


def wire_id(call_id: str) -> str:
    """A call's id as it can be sent: itself, or legal characters and a hash of it."""
    return call_id if _ID.fullmatch(call_id) else f"{_OTHER.sub('_', call_id)[:64]}_{_hash(call_id)}"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
