"""From Python types to JSON Schema, to what validates against them, and back.

The common types are described here; for any other pydantic is asked, and only then imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, get_args, get_origin

import msgspec

from isthmus.errors import ToolDefinitionError
from isthmus.models.pytypes import python_type as python_type
from isthmus.models.restore import holds_null, without_nulls
from isthmus.models.strictness import SCHEMA_NORMALIZATION_ERROR as SCHEMA_NORMALIZATION_ERROR
from isthmus.models.strictness import ensure_strict_json_schema as ensure_strict_json_schema
from isthmus.models.typebounds import NotPlain
from isthmus.models.typeschema import Definitions, described, with_default
from isthmus.models.validators import Validator as Validator
from isthmus.models.validators import adapter_of, json_schema, json_schemas, object_core

MISSING: Any = inspect.Parameter.empty


class Parameter(msgspec.Struct, frozen=True):
    """One argument of an object.

    Args:
        name: its key.
        annotation: its type; not a string.
        default: what stands where it is left out; `MISSING` makes it required.
        description: what a model is told about it; empty takes the text in an `Annotated`.
    """

    name: str
    annotation: Any
    default: Any = MISSING
    description: str = ""


def object_schema(parameters: Sequence[Parameter], *, title: str = "") -> dict[str, Any]:
    """The JSON Schema of an object with these keys and no others; `$defs` are shared.

    Args:
        parameters: the keys.
        title: the name of the object.

    Raises:
        ToolDefinitionError: a type that has no JSON Schema; names the parameter and the type.
    """
    members, shared = _members(parameters, title)
    for each in parameters:
        _complete(members[each.name], each)
    made: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": False}
    if title:
        made["title"] = title
    required = [each.name for each in parameters if each.default is MISSING]
    if required:
        made["required"] = required
    return {**made, "$defs": shared} if shared else made


def _members(parameters: Sequence[Parameter], title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys' schemas and their shared definitions; where one type is not plain, pydantic says them all."""
    defs = Definitions()
    try:
        return {each.name: described(each.annotation, defs) for each in parameters}, defs.schemas
    except NotPlain:
        for each in parameters:
            try:
                json_schema(each.annotation)
            except TypeError as error:
                raise ToolDefinitionError(f"{title or 'arguments'}: parameter {each.name!r}: {error}") from None
        return json_schemas({each.name: each.annotation for each in parameters})


def _complete(member: dict[str, Any], parameter: Parameter) -> None:
    """Put description and default into a key's schema; a default without a JSON form is left out."""
    text = parameter.description or _text(parameter.annotation)
    if text:
        member["description"] = text
    if parameter.default is MISSING:
        return
    try:
        with_default(member, parameter.default)
    except NotPlain:
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        with suppress(PydanticSerializationError, ValueError):
            member["default"] = to_jsonable_python(parameter.default, inf_nan_mode="strings")


def _text(annotation: Any) -> str:
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, str)), "")


def object_validator(parameters: Sequence[Parameter], *, title: str = "") -> Validator:
    """What checks a mapping against these keys and gives a dict of Python values, defaults filled in.

    A null for what may be left out, and that its type does not take, counts as left out: strict readers make models
    write it, and others do so unasked.

    Args:
        parameters: the keys.
        title: the name of the object, for messages.
    """

    def mended(value: Any) -> Any:
        # One that is nested deeper than this can be followed stays as it is, and the check says what is wrong with it.
        with suppress(RecursionError):
            return without_nulls(value, object_schema(parameters)) if holds_null(value) else value
        return value

    def build() -> Any:
        types = {each.name: each.annotation for each in parameters}
        defaults = {each.name: each.default for each in parameters if each.default is not MISSING}
        return object_core(types, defaults, title=title or "arguments", mended=mended)

    return Validator(build)


def type_schema(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of a type.

    Raises:
        TypeError: it has none; names it.
    """
    defs = Definitions()
    try:
        made = described(annotation, defs)
    except NotPlain:
        return json_schema(annotation)
    return defs.completed(made)


def type_validator(annotation: Any) -> Validator:
    """What checks values against a type; one that nothing can check is told at the first use."""
    return Validator(lambda: adapter_of(annotation))
