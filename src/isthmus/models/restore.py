"""Back from what a dialect made a model write to what the author's schema means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isthmus.models.reshape import WRAPPED, Normalised
from isthmus.models.reshape_values import mapping
from isthmus.models.schemamerge import same
from isthmus.models.schemawalk import Document, is_nothing, kind_of, kinds_of, required_in


def restore(value: Any, normalised: Normalised) -> Any:
    """A value of the new schema as one of the old: out of its wrapping, and without nulls for what was left out.

    Args:
        value: what the model wrote; never changed.
        normalised: what `normalise` gave.
    """
    if normalised.report.wrapped and isinstance(value, Mapping) and value.keys() == {WRAPPED}:
        value = value[WRAPPED]
    return without_nulls(value, normalised.original)


def without_nulls(value: Any, schema: Any) -> Any:
    """A value without the nulls that its schema does not take and that stand where a property may be left out.

    Args:
        value: what the model wrote; never changed.
        schema: the author's own JSON Schema.
    """
    if not isinstance(schema, Mapping) or not holds_null(value):
        return value
    document = Document(schema)
    return _Reader(document).read(value, document.body)


def holds_null(value: Any) -> bool:
    """Whether there is a null in an object or an array somewhere in a value."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(item is None or holds_null(item) for item in items)


class _Reader:
    """Reads values by the schemas of one document; a null for what may be left out fits wherever it does."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def read(self, value: Any, schema: Any, *, seen: tuple[str, ...] = ()) -> Any:
        """The value without added nulls; `seen` holds the references on the way to this schema."""
        if not isinstance(schema, Mapping) or not isinstance(value, dict | list):
            return value
        for part, inside in self._parts(schema, seen):
            value = self.read(value, part, seen=inside)
        for key in ("anyOf", "oneOf"):
            branch = next((each for each in schema.get(key) or () if self.fits(value, each, seen=seen)), None)
            value = self.read(value, branch, seen=seen)
        if isinstance(value, dict):
            return self._object(value, schema)
        return [self.read(item, each) for item, each in zip(value, _places(schema, len(value)), strict=True)]

    def _parts(self, schema: Mapping[str, Any], seen: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
        """The schemas that all hold here: what is referred to, and those of `allOf`."""
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in seen:
            yield self._document.target(ref), (*seen, ref)
        for part in schema.get("allOf") or ():
            yield part, seen

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
        made = {}
        for name, item in value.items():
            inside = _property(schema, name)
            if not self._is_added(name, item, schema):
                made[name] = self.read(item, inside)
        return made

    def _is_added(self, name: str, item: Any, schema: Mapping[str, Any]) -> bool:
        told = mapping(schema.get("properties"))
        return item is None and name in told and name not in required_in(schema) and not self.fits(None, told[name])

    def fits(self, value: Any, schema: Any, *, seen: tuple[str, ...] = ()) -> bool:
        """Whether a value has the form of a schema: types, choices and keys."""
        if not isinstance(schema, Mapping):
            return schema is not False
        for part, inside in self._parts(schema, seen):
            if not self.fits(value, part, seen=inside):
                return False
        for key in ("anyOf", "oneOf"):
            if key in schema and not any(self.fits(value, each, seen=seen) for each in schema[key]):
                return False
        return not is_nothing(schema) and self._is_plainly(value, schema)

    def _is_plainly(self, value: Any, schema: Mapping[str, Any]) -> bool:
        kind, kinds = kind_of(value), kinds_of(schema)
        if kinds and kind not in kinds and not (kind == "integer" and "number" in kinds):
            return False
        chosen = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if chosen is not None and not any(same(value, each) for each in chosen):
            return False
        if isinstance(value, dict):
            return self._has_keys(value, schema)
        if isinstance(value, list):
            return all(self.fits(item, each) for item, each in zip(value, _places(schema, len(value)), strict=True))
        return True

    def _has_keys(self, value: dict[str, Any], schema: Mapping[str, Any]) -> bool:
        told = mapping(schema.get("properties"))
        others = schema.get("additionalProperties", not told)
        if not all(name in value for name in required_in(schema)):
            return False
        return all(
            self._is_added(name, item, schema) or self.fits(item, told.get(name, others))
            for name, item in value.items()
        )


def _property(schema: Mapping[str, Any], name: str) -> Any:
    return mapping(schema.get("properties")).get(name, schema.get("additionalProperties"))


def _places(schema: Mapping[str, Any], count: int) -> list[Any]:
    """The schema of each item of an array."""
    prefix, items = schema.get("prefixItems") or [], schema.get("items", True)
    if isinstance(items, list):
        prefix, items = items, schema.get("additionalItems", True)
    return [*prefix[:count], *[items] * (count - len(prefix))]
