"""What checks values against Python types: pydantic, imported and compiled when first used."""

from __future__ import annotations

import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cache, lru_cache, reduce
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

from isthmus.models.jsontext import dumps, loads

_KEPT = 512


class Validator:
    """Checks values against a type; compiled when first used."""

    __slots__ = ("_build", "_made")

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build: Callable[[], Any] | None = build
        self._made: Any = None

    def _core(self) -> Any:
        build = self._build
        if build is not None:
            # Two threads may both compile: the last one stays, and they are equal.
            self._made = build()
            self._build = None
        return self._made

    def validate(self, value: Any) -> Any:
        """The Python value of what JSON decoded to.

        Raises:
            pydantic.ValidationError: it does not fit.
            TypeError: the type is one that nothing can check.
        """
        return self._core().validate_python(value)

    __call__ = validate

    def validate_json(self, data: bytes | str) -> Any:
        """The Python value of a JSON text.

        Raises:
            pydantic.ValidationError: it is no JSON, or does not fit.
            TypeError: the type is one that nothing can check.
        """
        return self._core().validate_json(data)


def adapter_of(annotation: Any) -> Any:
    """Pydantic's adapter of a type.

    Raises:
        TypeError: pydantic has no words for it; names it.
    """
    try:
        # Unions of another order are equal, and not the same to a reader.
        return _kept(annotation, repr(annotation))
    except TypeError as error:
        if not str(error).startswith("unhashable"):
            raise
        return _adapter(annotation)


@lru_cache(maxsize=_KEPT)
def _kept(annotation: Any, _: str) -> Any:
    return _adapter(annotation)


def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
    from pydantic_core import SchemaError

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*ReadOnly.*")
            return TypeAdapter(_readable(annotation, {}))
    except (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError) as error:
        raise TypeError(_no_schema(annotation, error)) from None


def _no_schema(annotation: Any, error: Exception) -> str:
    # What follows is advice for those who have a pydantic model.
    why = str(getattr(error, "message", error)).splitlines()[0].partition(". Set `")[0]
    return f"{_name(annotation)} has no JSON Schema: {why}; use a type made of plain ones, a dataclass or a TypedDict"


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def json_schema(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of a type, as pydantic says it, without the titles that it makes of field names.

    Raises:
        TypeError: it has none; names it.
    """
    from pydantic.errors import PydanticUserError
    from pydantic_core import PydanticSerializationError

    adapter = adapter_of(annotation)
    try:
        made: dict[str, Any] = adapter.json_schema(schema_generator=_generator())
    except (PydanticUserError, PydanticSerializationError) as error:
        raise TypeError(_no_schema(annotation, error)) from None
    return made


def json_schemas(named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schemas of several types, and the definitions that they share.

    Args:
        named: the types by any name.

    Raises:
        TypeError: one has none; names it.
    """
    from pydantic import TypeAdapter

    inputs: list[Any] = [(name, "validation", adapter_of(annotation)) for name, annotation in named.items()]
    made, shared = TypeAdapter.json_schemas(inputs, schema_generator=_generator())
    return {name: dict(schema) for (name, _), schema in made.items()}, shared.get("$defs", {})


@cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return Untitled


class _Object:
    __slots__ = ("_core", "_defaults", "_mended", "_misfit")

    def __init__(self, core: Any, defaults: Mapping[str, Any], mended: Callable[[Any], Any]) -> None:
        from pydantic_core import ValidationError

        self._core = core
        self._misfit = ValidationError
        self._defaults = defaults
        self._mended = mended

    def validate_python(self, value: Any) -> dict[str, Any]:
        try:
            return self._filled(self._core.validate_python(value))
        except self._misfit:
            mended = self._mended(value)
            if mended == value:
                raise
        return self._filled(self._core.validate_python(mended))

    def validate_json(self, data: bytes | str) -> dict[str, Any]:
        try:
            return self._filled(self._core.validate_json(data))
        except self._misfit:
            with suppress(ValueError):
                value = loads(data)
                mended = self._mended(value)
                if mended != value:
                    data = dumps(mended)
        return self._filled(self._core.validate_json(data))

    def _filled(self, found: dict[str, Any]) -> dict[str, Any]:
        for name, default in self._defaults.items():
            if name not in found:
                found[name] = deepcopy(default) if isinstance(default, list | dict | set) else default
        return found


def object_core(
    fields: Mapping[str, Any], defaults: Mapping[str, Any], *, title: str, mended: Callable[[Any], Any]
) -> Any:
    """What checks an object with these keys and no others; it fills in the defaults.

    Args:
        fields: the types of the keys.
        defaults: what stands for those that may be left out.
        title: the name of the object, for messages.
        mended: what else a value that does not fit may mean.

    Raises:
        TypeError: a type that nothing can check; names it.
    """
    from pydantic_core import SchemaValidator, core_schema

    definitions: dict[str, Any] = {}
    keys = {
        name: core_schema.typed_dict_field(_hoisted(adapter_of(annotation), definitions), required=name not in defaults)
        for name, annotation in fields.items()
    }
    schema: Any = core_schema.typed_dict_schema(keys, extra_behavior="forbid")
    if definitions:
        schema = core_schema.definitions_schema(schema, list(definitions.values()))
    return _Object(SchemaValidator(schema, {"title": title}), defaults, mended)


def _hoisted(adapter: Any, definitions: dict[str, Any]) -> Any:
    """A core schema without its own definitions, which are shared: a name may stand in one document once."""
    schema = adapter.core_schema
    while schema["type"] == "definitions":
        for each in schema["definitions"]:
            definitions.setdefault(each["ref"], each)
        schema = schema["schema"]
    return schema


def _readable(annotation: Any, seen: dict[type, Any]) -> Any:
    """The annotation with what pydantic cannot read put in words that it can.

    Before Python 3.12 it refuses a `TypedDict` of the standard library, whose marks were not kept.
    """
    if sys.version_info >= (3, 12):
        return annotation
    if isinstance(annotation, type) and type(annotation).__module__ == "typing" and hasattr(annotation, "__total__"):
        return seen[annotation] if annotation in seen else _same_keys(annotation, seen)
    args = get_args(annotation)
    origin = get_origin(annotation)
    made = [_readable(arg, seen) if not isinstance(arg, str | bytes | list) else arg for arg in args]
    if all(new is old for new, old in zip(made, args, strict=True)):
        return annotation
    if origin is Annotated:
        return Annotated[(made[0], *args[1:])]
    return annotation.copy_with(tuple(made)) if hasattr(annotation, "copy_with") else _of(origin, made)


def _of(origin: Any, args: Iterable[Any]) -> Any:
    if origin is types.UnionType:
        return reduce(operator.or_, args)
    return origin[tuple(args)]


_REQUIRED: Mapping[bool, Any] = {True: Required, False: NotRequired}


def _same_keys(cls: Any, seen: dict[type, Any]) -> Any:
    import typing_extensions

    make: Any = typing_extensions.TypedDict
    made = make(cls.__name__, {})
    made.__module__, made.__qualname__, made.__doc__ = cls.__module__, cls.__qualname__, cls.__doc__
    seen[cls] = made
    required: set[str] = set()
    optional: set[str] = set()
    for name, hint in get_type_hints(cls, include_extras=True).items():
        marked = getattr(get_origin(hint), "_name", "") in ("Required", "NotRequired")
        inner = _readable(get_args(hint)[0] if marked else hint, seen)
        mark = getattr(get_origin(hint), "_name", "") if marked else ""
        needed = mark == "Required" or (not mark and name in cls.__required_keys__)
        (required if needed else optional).add(name)
        made.__annotations__[name] = _REQUIRED[needed][inner]
    made.__required_keys__, made.__optional_keys__ = frozenset(required), frozenset(optional)
    if hasattr(cls, "__pydantic_config__"):
        made.__pydantic_config__ = cls.__pydantic_config__
    return made
