"""The form that a reply must take: how it is asked for, and how a reply is read into it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from isthmus.errors import OutputDefinitionError
from isthmus.models.jsontext import dumps, fields, strictly, unsayable
from isthmus.models.lenient import read_list, read_object, unwrap_members
from isthmus.models.outputshape import Shape, legal_name, shape_of, shown
from isthmus.models.reshape import WRAPPED

T = TypeVar("T")

STRATEGIES = ("auto", "native", "tool", "prompted")
"""How a form can be asked for; "auto" leaves it to what the model supports."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


class NoJsonError(ValueError):
    """A reply in which there is no JSON at all."""


@dataclass(frozen=True, slots=True)
class SchemaValidationResult:
    """What to do with a reply.

    Args:
        is_valid: whether it is of the form, or needs not be.
        should_retry: whether to ask again.
        error_message: what does not fit, for the model.
    """

    is_valid: bool
    should_retry: bool = False
    error_message: str | None = None


class OutputSchema(Generic[T]):
    """The form of a reply: a type, or a JSON Schema.

    Objects travel as they are, anything else as the one member "response" of an object, and is taken out again.

    Args:
        type: a pydantic model, dataclass, TypedDict, enum, Literal, list, union or any other type with a JSON Schema;
            a JSON Schema as a dict, which is never rewritten; `str` is plain text.
        strict_json_schema: whether the provider is to enforce the schema: all objects closed, all members required.
        strategy: "native" (the provider's own structured output), "tool" (a call of a tool that is made for it),
            "prompted" (instructions); "auto" takes the first that every tier supports.
        name: what providers are told it is called, up to 64 of a-z, A-Z, 0-9, "_" and "-"; made from the type where
            None.

    Raises:
        OutputDefinitionError: no type, no JSON Schema, one that cannot be strict, or a name or strategy that cannot be.
    """

    __slots__ = ("_name", "_shape", "output_type", "strategy", "strict_json_schema")

    def __init__(
        self,
        type: type[T] | Mapping[str, Any] | Any,
        strict_json_schema: bool = True,
        *,
        strategy: str = "auto",
        name: str | None = None,
    ) -> None:
        if strategy not in STRATEGIES:
            raise OutputDefinitionError(
                f"OutputSchema: strategy={strategy!r}: use one of {', '.join(map(repr, STRATEGIES))}"
            )
        if name is not None and not _NAME.fullmatch(name):
            raise OutputDefinitionError(
                f"OutputSchema: name={name!r}: providers take 1 to 64 of a-z, A-Z, 0-9, '_' and '-', no digit first"
            )
        self.output_type = type
        self.strict_json_schema = strict_json_schema
        self.strategy = strategy
        self._name = name
        self._shape: Shape | None = None if type is str else shape_of(type, strict_json_schema)

    @property
    def wrapped(self) -> bool:
        """Whether the value travels in an object."""
        return self._shape is not None and self._shape.wrapped

    @property
    def is_text(self) -> bool:
        """Whether the reply is plain text."""
        return self._shape is None

    def __repr__(self) -> str:
        return f"OutputSchema({shown(self.output_type)}, strategy={self.strategy!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputSchema) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self.name())

    def _key(self) -> tuple[Any, ...]:
        return self.output_type, self.strict_json_schema, self.strategy, self._name

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, self._key()

    def name(self) -> str:
        """A name that every provider accepts."""
        return self._name or legal_name(self.output_type)

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the reply, wrapped where it has to be; the caller's own copy.

        Raises:
            ValueError: the reply is plain text.
        """
        if self._shape is None:
            raise OutputDefinitionError("OutputSchema(str) is plain text and has no JSON Schema: read the text itself")
        return copy.deepcopy(self._shape.schema)

    def response_format(self) -> dict[str, Any] | None:
        """The Chat Completions `response_format`; None asks for plain text."""
        if self._shape is None:
            return None
        described = {"name": self.name(), "schema": self.json_schema(), "strict": self._shape.strict}
        return {"type": "json_schema", "json_schema": described}

    def validate_json(self, text: str, strict: bool = False) -> T | None:
        """The value that a text holds.

        Args:
            text: what the model wrote.
            strict: whether the whole text must be JSON of the form; else loose JSON is read, prose around it is passed
                over, and an inner object with all the required keys will do.

        Returns:
            The value; None where the text is empty or, unless `strict`, holds no JSON.

        Raises:
            ValueError: it does not fit; names the place and the value.
        """
        if not text or not text.strip():
            return None
        try:
            return self.read(text, strict)
        except NoJsonError:
            if strict:
                raise
            return None

    def read(self, text: str, strict: bool = False) -> T:
        """The value that a text must hold.

        Args:
            text: what the model wrote.
            strict: as in `validate_json`.

        Raises:
            NoJsonError: there is no JSON in it.
            ValueError: it does not fit.
        """
        if self._shape is None:
            return text  # type: ignore[return-value]
        try:
            return self._read(text, strict)
        except RecursionError:
            raise ValueError(f"{self.name()}: the reply is nested too deeply to be read") from None

    def _read(self, text: str, strict: bool) -> T:
        try:
            whole = strictly(text)
        except (ValueError, RecursionError):
            if strict:
                raise NoJsonError(f"{self.name()}: the reply is not JSON: {text!r:.80}") from None
            return self._loosely(text)
        try:
            return self._fitted(text, bare=not strict)
        except ValueError as error:
            if strict:
                raise
            return self._loosely(text) if isinstance(whole, str) else self._inside(whole, error)

    def _loosely(self, text: str) -> T:
        """The value of a text that is no JSON as it stands."""
        found: Any = read_object(text)
        if self.wrapped and WRAPPED not in (found or ()):
            listed = read_list(text)
            found = found if listed is None else listed
        if found is None:
            raise NoJsonError(f"{self.name()}: there is no JSON object in the reply")
        unsaid = unsayable(found)
        if unsaid is not None:
            raise ValueError(f"{self.name()}: reply{unsaid}: must be a number that JSON has and a float holds")
        try:
            return self._fitted(dumps(found), bare=True)
        except ValueError as error:
            return self._inside(found, error)

    def _fitted(self, text: str | bytes, *, bare: bool) -> T:
        """The value of a JSON text; a `bare` one may come without its wrapper."""
        if not self.wrapped:
            return self._checked(text)
        try:
            members = fields(text)
        except ValueError:
            members = {}
        if WRAPPED in members:
            try:
                return self._checked(bytes(members[WRAPPED]))
            except ValueError:
                if not bare:
                    raise
        elif not bare:
            raise ValueError(f"{self.name()}: {WRAPPED}: it is required")
        return self._checked(text)

    def _checked(self, text: str | bytes) -> T:
        try:
            return self._shape.value(text)  # type: ignore[union-attr,no-any-return]
        except ValueError as error:
            raise ValueError(f"{self.name()}: {_faults(error)}") from None

    def _inside(self, value: Any, error: ValueError) -> T:
        """The value of an object inside that fits, where the whole does not."""
        candidates = [unwrap_members(value)] if isinstance(value, dict) else []
        required = set(self.json_schema().get("required") or ())
        if required:
            candidates += [inner for inner in _objects(value) if required <= inner.keys()]
        for candidate in candidates:
            try:
                return self._fitted(dumps(candidate), bare=False)
            except ValueError:
                continue
        raise error

    def parse_response(self, response: Any, strict: bool = False) -> T | None:
        """The value that a reply holds; None where it has no text.

        Args:
            response: a `ModelResponse`, or anything with `text`, such as a `StepResult`.
            strict: as in `validate_json`.

        Raises:
            ValueError: it does not fit.
        """
        return self.validate_json(text_of_response(response), strict)

    def validate_response_with_retry(
        self,
        response: Any,
        retry_count: int,
        max_retries: int,
        enforce_structured_output: bool = True,
        strict: bool = False,
    ) -> SchemaValidationResult:
        """Whether a reply is of the form, and if not, whether to ask again.

        Args:
            response: as in `parse_response`.
            retry_count: how often it was asked again so far.
            max_retries: how often it may be.
            enforce_structured_output: whether it has to be of the form at all.
            strict: as in `validate_json`.
        """
        if not enforce_structured_output or self.is_text:
            return SchemaValidationResult(True)
        try:
            self.read(text_of_response(response), strict)
        except ValueError as error:
            return SchemaValidationResult(False, retry_count + 1 <= max_retries, str(error))
        return SchemaValidationResult(True)


def resolve_output_schema(schema: Any) -> Any:
    """The form that somebody asks for: a type as an `OutputSchema`; that, or an `OutputForm` of his own, as it is.

    Args:
        schema: None, a type, a JSON Schema, or a form.

    Raises:
        OutputDefinitionError: it is none of these.
    """
    if schema is None or isinstance(schema, OutputSchema):
        return schema
    if not isinstance(schema, type) and callable(getattr(schema, "response_format", None)):
        return schema
    return OutputSchema(schema)


def text_of_response(response: Any) -> str:
    """The text of a reply: of a `ModelResponse` that of its first choice, else its `text`."""
    choices = getattr(response, "choices", None)
    if choices is None:
        return getattr(response, "text", None) or (response if isinstance(response, str) else "")
    return (choices[0].message.content or "") if choices else ""


def _made(type: Any, strict: bool, strategy: str, name: str | None) -> OutputSchema[Any]:
    return OutputSchema(type, strict, strategy=strategy, name=name)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects inside a value, outermost first."""
    level = [value] if isinstance(value, dict | list) else []
    while level:
        inner = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        level = [item for item in inner if isinstance(item, dict | list)]
        yield from (item for item in level if isinstance(item, dict))


def _faults(error: ValueError) -> str:
    """What does not fit, place by place."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    said = []
    for fault in errors(include_url=False):
        where = ".".join(map(str, fault["loc"])) or "reply"
        why = f"{fault['msg']} (given: {fault['input']!r:.80})"
        said.append(f"{where}: {'it is required' if fault['type'] == 'missing' else why}")
    return "; ".join(said)
