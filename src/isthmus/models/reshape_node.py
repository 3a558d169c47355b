"""One JSON Schema after another, rewritten by the rules of a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from isthmus.models import reshape_values as values
from isthmus.models.dialects import Dialect
from isthmus.models.schemamerge import Unmergeable, merged
from isthmus.models.schemawalk import (
    ANNOTATIONS,
    BINDING,
    DEFS,
    Document,
    Schema,
    copied,
    distinct,
    escaped,
    is_nothing,
    kinds_of,
    required_in,
)

EXACT, NARROWER, WIDER = "exact", "narrower", "wider"
_EXPANSIONS = 10_000


class Change(msgspec.Struct, frozen=True):
    """One thing that was changed in a schema.

    Args:
        path: where, as a JSON pointer into the schema that was given; empty for the root.
        what: what was done.
        effect: "exact": the same values fit; "narrower": fewer do; "wider": more do.
    """

    path: str
    what: str
    effect: str


class Reshaper:
    """Rewrites the schemas of one document, and keeps count of what that changes.

    Args:
        document: the document.
        rules: the dialect.
    """

    def __init__(self, document: Document, rules: Dialect) -> None:
        self.rules = rules
        self.changes: list[Change] = []
        self.problems: list[str] = []
        self.defs: Schema = {}
        self._document = document
        self._done: set[str] = set()
        self._budget = _EXPANSIONS
        if rules.recursion == "no":
            self._endless = document.recursive()
        elif rules.recursion == "optional":
            self._endless = document.recursive(through_optional=False)
        else:
            self._endless = set()
        self._recursive = document.recursive()

    def change(self, at: str, what: str, *, effect: str) -> None:
        """Take down a change."""
        self.changes.append(Change(at, what, effect))

    def cannot(self, at: str, why: str) -> Schema:
        """Take down what the dialect cannot say; the schema that stands there instead."""
        if self.rules.widen:
            self.change(at, f"{why}: any value is taken", effect=WIDER)
        else:
            self.problems.append(f"{at or 'root'}: {why}")
        return {}

    def whole(self, schema: Schema) -> Schema:
        """The root as far as it must be known to tell whether it is an object: references and unions resolved."""
        flat: Any = self._flat(schema, "", root=True)
        seen: set[str] = set()
        while isinstance(flat, dict) and "$ref" in flat and flat["$ref"] not in seen:
            seen.add(flat["$ref"])
            target = self._document.target(flat["$ref"])
            if not isinstance(target, Mapping):
                break
            self.change("", "the reference was put in place", effect=EXACT)
            flat = self._flat(copied(target), "", root=True)
        if is_nothing(flat):
            return {"not": {}}
        if "type" not in flat and "anyOf" not in flat:
            flat = values.typed(flat, self, at="")
        return dict(flat)

    def node(self, schema: Any, at: str) -> Schema:
        """A schema as the dialect takes it.

        Args:
            schema: it.
            at: its place in the schema that was given.
        """
        if not isinstance(schema, dict | bool):
            return self.cannot(at, f"{schema!r:.40} is no schema; write an object or a boolean")
        flat = self._flat(schema, at)
        if flat is False:
            return self.cannot(at, "no value fits here")
        if "$ref" in flat:
            return self._reference(flat, at)
        if "anyOf" in flat:
            return self._union(flat, at)
        flat = values.narrowed(flat, self, at=at)
        if "anyOf" in flat:
            return self._union(flat, at)
        if self.rules.typed and "type" not in flat:
            flat = values.typed(flat, self, at=at)
            if "type" not in flat:
                return self.cannot(at, "a value of any type; name the type")
        made = values.kept(flat, self, at=at)
        for kind, shape in (("object", self._object), ("array", self._array)):
            if values.concerns(flat, kind):
                made = shape(flat, made, at)
        return made

    def _flat(self, schema: Any, at: str, *, root: bool = False) -> Any:
        """The schema without `allOf`, `oneOf` and references that have company, as far as that can be said."""
        if schema is True:
            return {}
        if is_nothing(schema):
            return False
        flat: Any = schema
        while isinstance(flat, dict):
            turned = self._turned(flat, at, root)
            if turned is None:
                return flat
            flat = turned
        return {} if flat is True else flat

    def _turned(self, schema: Schema, at: str, root: bool) -> Any:
        """The schema after one step; None where none is left."""
        self._budget -= 1
        if self._budget < 0:
            self.problems.append(f"{at or 'root'}: the schema grows without end; write it without allOf")
            return {}
        if "allOf" in schema:
            return self._without_all_of(schema, at)
        company = schema.keys() - {"$ref", "$defs"}
        if "$ref" in schema and company:
            return self._without_company(schema, at)
        if "oneOf" in schema:
            return self._without_one_of(schema, at)
        beside = (schema.keys() - ANNOTATIONS - {"anyOf", "$defs"}) & BINDING
        if "anyOf" in schema and beside:
            return self._spread(schema, at, root)
        return None

    def _without_all_of(self, schema: Schema, at: str) -> Any:
        rest: Any = {key: value for key, value in schema.items() if key != "allOf"}
        for number, part in enumerate(schema["allOf"]):
            if rest is False:
                break
            place = f"{at}/allOf/{number}"
            if isinstance(part, dict) and part.keys() == {"$ref"} and rest is not True and not rest.keys() & BINDING:
                rest = {**rest, **part}
                self.change(place, "allOf was merged", effect=EXACT)
                continue
            try:
                rest = merged(rest, self._open(part))
                self.change(place, "allOf was merged", effect=EXACT)
            except Unmergeable:
                self.change(place, "allOf was left out: it cannot be merged", effect=WIDER)
        return rest

    def _open(self, schema: Any) -> Any:
        """A schema with the reference that it is, put in place."""
        if isinstance(schema, dict) and "$ref" in schema:
            target = self._document.target(schema["$ref"])
            if target is None or str(schema["$ref"]).removeprefix(DEFS) in self._recursive:
                raise Unmergeable
            return merged({key: value for key, value in schema.items() if key != "$ref"}, target)
        return schema

    def _without_company(self, schema: Schema, at: str) -> Any:
        """A reference that stands alone, or what it leads to together with what stood beside it."""
        ref, beside = schema["$ref"], {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
        if str(ref).removeprefix(DEFS) in self._recursive:
            effect = WIDER if beside.keys() & BINDING else EXACT
            self.change(
                at, f"{', '.join(sorted(beside))} beside a reference to what recurs was left out", effect=effect
            )
            return {"$ref": ref}
        target = self._document.target(ref)
        if target is None:
            return {"$ref": ref}
        try:
            made = merged(beside, target)
        except Unmergeable:
            self.change(at, f"{', '.join(sorted(beside))} beside a reference was left out", effect=WIDER)
            return {"$ref": ref}
        self.change(at, "the reference was put in place of what stood beside it", effect=EXACT)
        return made

    def _without_one_of(self, schema: Schema, at: str) -> Any:
        made = {key: value for key, value in schema.items() if key not in ("oneOf", "discriminator")}
        branches = schema["oneOf"]
        if "anyOf" in made:
            self.change(at, "oneOf beside anyOf was left out", effect=WIDER)
            return made
        apart = values.disjoint([self._seen(branch) for branch in branches])
        self.change(f"{at}/oneOf", "oneOf became anyOf", effect=EXACT if apart else WIDER)
        return {**made, "anyOf": list(branches)}

    def _seen(self, branch: Any) -> Any:
        try:
            return self._open(branch)
        except Unmergeable:
            return branch

    def _spread(self, schema: Schema, at: str, root: bool) -> Any:
        """What stands beside a union, put into each of its branches."""
        rest = {key: value for key, value in schema.items() if key in ANNOTATIONS or key == "$defs"}
        beside = {key: value for key, value in schema.items() if key not in rest and key != "anyOf"}
        if root and kinds_of(schema) == ["object"] and self.rules.root_object:
            self.change(f"{at}/anyOf", "the union at the root was left out", effect=WIDER)
            return {**rest, **beside}
        try:
            branches = [merged(beside, self._open(branch)) for branch in schema["anyOf"]]
        except Unmergeable:
            self.change(f"{at}/anyOf", "the union was left out: it cannot be merged", effect=WIDER)
            return {**rest, **beside}
        self.change(at, "what stood beside the union was put into its branches", effect=EXACT)
        return {**rest, "anyOf": branches}

    def _reference(self, schema: Schema, at: str) -> Schema:
        ref = schema["$ref"]
        name = str(ref).removeprefix(DEFS)
        if self._document.target(ref) is None:
            return self.cannot(at, f"the reference {ref!r} leads nowhere in this schema; put what it means in place")
        if name in self._endless:
            return self.cannot(at, f"{name!r} leads back to itself")
        if name not in self._done:
            self._done.add(name)
            self.defs[name] = {}
            self.defs[name] = self.node(self._document.target(ref), f"/$defs/{escaped(name)}")
        return {"$ref": ref}

    def _union(self, schema: Schema, at: str) -> Schema:
        made = values.annotated(schema, self, at=at)
        branches: list[Schema] = []
        for number, branch in enumerate(schema["anyOf"]):
            if is_nothing(branch):
                continue
            branches.append(self.node(branch, f"{at}/anyOf/{number}"))
        if not branches:
            return self.cannot(at, "a union without a branch that a value fits")
        return {**made, "anyOf": distinct(branches)}

    def _object(self, schema: Schema, made: Schema, at: str) -> Schema:
        needed = required_in(schema)
        others = schema.get("additionalProperties", None)
        properties = dict(values.mapping(schema.get("properties")))
        others = False if is_nothing(others) else others
        for name in needed:
            if name not in properties and others is not False:
                properties[name] = True if others is None else others
        if self.rules.closed and self._is_open(properties, others, at):
            return self.cannot(at, "an object with keys of any name; list its properties")
        shown: Schema = {}
        for name, each in properties.items():
            place = f"{at}/properties/{escaped(name)}"
            if is_nothing(each):
                self.change(
                    place, "a property that must be left out is not told", effect=EXACT if others is False else WIDER
                )
            else:
                shown[name] = self.node(each, place)
        lost = [name for name in needed if name not in shown]
        if lost:
            return self.cannot(at, f"{lost[0]!r} is required and must be left out")
        self._patterns(schema, at)
        if shown or "properties" in schema or self.rules.closed:
            made["properties"] = shown
        if self.rules.all_required:
            for name in [name for name in shown if name not in needed]:
                shown[name] = self._nullable(shown[name], properties[name], f"{at}/properties/{escaped(name)}")
            needed = [*shown]
        if needed or "required" in schema or self.rules.all_required:
            made["required"] = needed
        if self.rules.closed:
            made["additionalProperties"] = False
        elif others is not None:
            made["additionalProperties"] = (
                others if others in (True, False, {}) else self.node(others, f"{at}/additionalProperties")
            )
        return made

    def _is_open(self, properties: Schema, others: Any, at: str) -> bool:
        """Whether an object takes keys that it does not name; closes one that only does not say."""
        if others is None and (properties or not at):
            self.change(at, "the object was closed", effect=NARROWER)
            return False
        return others is not False

    def _patterns(self, schema: Schema, at: str) -> None:
        if "patternProperties" not in schema:
            return
        self.change(
            f"{at}/patternProperties", "properties by pattern: their names can no longer be given", effect=NARROWER
        )
        self.change(f"{at}/patternProperties", "properties by pattern: their values are no longer bound", effect=WIDER)

    def _nullable(self, made: Schema, given: Any, at: str) -> Schema:
        """A property that may be left out as one that may be null."""
        if not self.rules.nullable:
            self.change(at, "required", effect=NARROWER)
            return made
        if values.takes_null(made, self.defs):
            same = isinstance(given, dict) and given.get("default", ...) is None
            self.change(at, "required: null stands for what was left out", effect=EXACT if same else NARROWER)
            return made
        self.change(at, "required: null, where it is left out", effect=EXACT)
        return values.with_null(made)

    def _array(self, schema: Schema, made: Schema, at: str) -> Schema:
        prefix, items = schema.get("prefixItems"), schema.get("items")
        if isinstance(items, list):
            prefix, items = items, schema.get("additionalItems")
        if prefix and items is not None and is_nothing(items):
            most = min(schema.get("maxItems", len(prefix)), len(prefix))
            if "maxItems" in self.rules.keywords:
                made["maxItems"] = most
            else:
                self.change(f"{at}/items", "the end of the array was left out", effect=WIDER)
        if prefix and "prefixItems" in self.rules.keywords:
            made["prefixItems"] = [self.node(each, f"{at}/prefixItems/{place}") for place, each in enumerate(prefix)]
            items = None if is_nothing(items) else items
        elif prefix:
            items = values.of_any_place(schema, prefix, items=items, at=at, reshaper=self)
        if items is None and self.rules.items_required:
            items = True
        if items is not None:
            made["items"] = self.node(items, f"{at}/items")
        return made
