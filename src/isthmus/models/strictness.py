"""The strict form of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from isthmus.models.dialects import dialect
from isthmus.models.reshape import Normalised, by_rules
from isthmus.models.schemawalk import BINDING, mapped

SCHEMA_NORMALIZATION_ERROR = (
    "The schema has no strict form: close its objects and list their properties, or pass strict_json_schema=False."
)


def ensure_strict_json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in its strict form: objects closed, every property required.

    Null defaults are left out; a single `allOf`, and a reference with something beside it, are put in place.

    Args:
        schema: a JSON Schema of an object; never changed. An empty one is an object without properties.

    Raises:
        ValueError: it has none, for one because an object takes keys of any name; names the place.
        TypeError: it is no mapping.
    """
    if not isinstance(schema, Mapping):
        raise TypeError(f"schema: must be a JSON Schema (a mapping), not {type(schema).__name__}")
    made = by_rules(schema or {"type": "object"}, msgspec.structs.replace(dialect(""), nullable=False))
    problems = made.report.problems or (("root: must be an object and no union",) if made.report.wrapped else ())
    if problems:
        raise ValueError(f"{SCHEMA_NORMALIZATION_ERROR} {'; '.join(problems)}")
    return made.schema


def conforms(made: Normalised) -> bool:
    """Whether a schema can be enforced as its author wrote it: only what binds nothing would be changed."""
    return made.usable and not made.report.wrapped and _bare(made.schema) == _bare(made.original)


def _bare(schema: Any) -> Any:
    bare = mapped(schema, _bare)
    if not isinstance(bare, dict):
        return bare
    return {
        key: value for key, value in bare.items() if key in (*BINDING, "$defs") and (key, value) != ("required", [])
    }
