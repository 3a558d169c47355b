"""From Python types to JSON Schema, to what validates against them, and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from isthmus.errors import ToolDefinitionError

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


class Validator:
    """Checks values against a type; compiled when first used."""

    __slots__ = ("_build", "_made")

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._made: Any = None

    def _core(self) -> Any:
        if self._made is None:
            self._made = self._build()
        return self._made

    def validate(self, value: Any) -> Any:
        """The Python value of what JSON decoded to.

        Raises:
            pydantic.ValidationError: it does not fit.
        """
        return self._core().validate_python(value)

    __call__ = validate

    def validate_json(self, data: bytes | str) -> Any:
        """The Python value of a JSON text.

        Raises:
            pydantic.ValidationError: it is no JSON, or does not fit.
        """
        return self._core().validate_json(data)


def object_schema(parameters: Sequence[Parameter], *, title: str = "") -> dict[str, Any]:
    """The JSON Schema of an object with these keys and no others; `$defs` are shared.

    Args:
        parameters: the keys.
        title: the name of the object.

    Raises:
        ToolDefinitionError: a type that has no JSON Schema; names the parameter and the type.
    """
    model, _ = _model(parameters, title)
    schema: dict[str, Any] = model.model_json_schema()
    return schema


def object_validator(parameters: Sequence[Parameter], *, title: str = "") -> Validator:
    """What checks a mapping against these keys and gives a dict of Python values, defaults filled in.

    Args:
        parameters: the keys.
        title: the name of the object, for messages.
    """
    return Validator(lambda: _Object(parameters, title))


def type_schema(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of a type.

    Raises:
        TypeError: it has none; names it.
    """
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(annotation).json_schema()
    except PydanticUserError as error:
        raise TypeError(f"{annotation!r} has no JSON Schema: {error.message}") from None


def type_validator(annotation: Any) -> Validator:
    """What checks values against a type."""

    def build() -> Any:
        from pydantic import TypeAdapter

        return TypeAdapter(annotation)

    return Validator(build)


def python_type(schema: Mapping[str, Any]) -> Any:
    """A Python type for a JSON Schema."""
    raise NotImplementedError


class _Object:
    def __init__(self, parameters: Sequence[Parameter], title: str) -> None:
        self._model, self._attributes = _model(parameters, title)

    def validate_python(self, value: Any) -> dict[str, Any]:
        return self._values(self._model.model_validate(value))

    def validate_json(self, data: bytes | str) -> dict[str, Any]:
        return self._values(self._model.model_validate_json(data))

    def _values(self, made: Any) -> dict[str, Any]:
        return {name: getattr(made, attribute) for name, attribute in self._attributes.items()}


def _model(parameters: Sequence[Parameter], title: str) -> tuple[Any, dict[str, str]]:
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticUserError

    fields: dict[str, Any] = {}
    attributes = {each.name: f"arg_{number}" for number, each in enumerate(parameters)}
    for each in parameters:
        options: dict[str, Any] = {"description": each.description} if each.description else {}
        default = ... if each.default is MISSING else each.default
        fields[attributes[each.name]] = (each.annotation, Field(default, alias=each.name, **options))
    try:
        model = create_model(title or "arguments", __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except PydanticUserError as error:
        names = ", ".join(f"{each.name}: {each.annotation!r}" for each in parameters)
        raise ToolDefinitionError(f"{title or 'arguments'}: no JSON Schema for {names}: {error.message}") from None
    return model, attributes
