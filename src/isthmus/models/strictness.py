"""The strict form of a reply's schema, which every endpoint of Chat Completions kind takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.models.dialects import dialect
from isthmus.models.reshape import normalise

SCHEMA_NORMALIZATION_ERROR = (
    "The schema has no strict form. Close its objects and list their properties, or pass strict_json_schema=False."
)


def ensure_strict_json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in its strict form: objects closed, every property required, what may be left out nullable.

    Null defaults are left out; a single `allOf`, and a reference with something beside it, are put in place.

    Args:
        schema: a JSON Schema of an object; never changed. An empty one is an object without properties.

    Raises:
        ValueError: it has none, for one because an object takes keys of any name; names the place.
    """
    rules = dialect("")
    made = normalise(schema or {"type": "object"}, rules.name)
    if not made.usable:
        raise ValueError(f"{SCHEMA_NORMALIZATION_ERROR} {'; '.join(made.report.problems)}")
    if made.report.wrapped:
        raise ValueError(f"{SCHEMA_NORMALIZATION_ERROR} root: must be an object and no union")
    return made.schema
