"""Prompts: templates whose structure is apart from their values, and which a run renders afresh.

Owns the template language (sandboxed, strict) and the messages that come of it. Must not know what files look like
(`isthmus.models.promptfile`) nor how a provider spells a part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import BuiltinFunctionType, CoroutineType, FunctionType, GeneratorType, MethodDescriptorType, MethodType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from isthmus.errors import PromptError
from isthmus.models.contract import OutputForm
from isthmus.models.jsontext import dumps
from isthmus.models.output import OutputSchema
from isthmus.models.promptfile import PromptFile, parse_prompt
from isthmus.models.promptparts import FilePart, ImagePart, Part, TextPart, part_content
from isthmus.models.promptvalues import values_by_name
from isthmus.models.results import structured

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

Ctx = TypeVar("Ctx")
Out = TypeVar("Out")

_ROUTINES = (FunctionType, MethodType, BuiltinFunctionType, MethodDescriptorType)
_NO_TEXT = (*_ROUTINES, type, GeneratorType, CoroutineType, bytes, bytearray, memoryview)
_FUNCTIONS = ("range", "namespace")
# What a template's own operations, and properties and methods of the values, raise; recursion is a RuntimeError.
_FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError),
    *(OSError, RuntimeError, TypeError, ValueError),
)
_SHOWN = 32


@cache
def _language() -> tuple[SandboxedEnvironment, dict[str, Any]]:
    """The template language as all prompts speak it, and the functions it has; loaded with the first template."""
    from jinja2 import StrictUndefined, Undefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Missing(StrictUndefined):
        # Inside a list it would be printed by its repr, and nobody would hear of it.
        __repr__ = StrictUndefined.__str__

    def printed(value: Any) -> Any:
        kind: Any = type(value)
        # The default form of an object is its address: another one in each process.
        nameless = (kind.__str__, kind.__repr__) == (object.__str__, object.__repr__)
        # A lenient kind of undefined, which came as a value, would print nothing.
        lenient = isinstance(value, Undefined) and not isinstance(value, StrictUndefined)
        if nameless or lenient or isinstance(value, _NO_TEXT):
            raise TypeError(f"a {kind.__name__} is no text")
        return value

    made = ImmutableSandboxedEnvironment(undefined=Missing, trim_blocks=True, autoescape=False, finalize=printed)
    made.filters["tojson"] = _tojson
    # The functions that are left out would print something where a variable of that name is missing.
    functions = {name: made.globals[name] for name in _FUNCTIONS}
    made.globals = {}
    return made, functions


def _tojson(value: Any, indent: int = 0) -> str:
    """JSON without the escapes for HTML that the language's own filter puts in."""
    try:
        text = dumps(value)
    except TypeError:
        # A variable that is missing says so when it is printed, wherever in the value it stands.
        repr(value)
        text = structured(value)
    return (msgspec.json.format(text, indent=indent) if indent else text).decode()


class _Text:
    """A template, compiled once.

    Args:
        source: the template.
        place: where it stands, for errors.
        first: the line of that place that it begins at.
    """

    __slots__ = ("_compiled", "_filename", "_first", "names", "place", "source")

    def __init__(self, source: Any, place: str, first: int = 1) -> None:
        if not isinstance(source, str):
            raise PromptError(f"{place}: a template must be text, not {type(source).__name__}")
        if not source.strip():
            raise PromptError(f"{place}: the template is empty: write its text, or leave it out")
        from jinja2 import Template, TemplateSyntaxError, meta, nodes

        self.source, self.place, self._first = source, place, first
        self._filename = f"<{place}>"
        env, functions = _language()
        try:
            tree = env.parse(source)
            code = env.compile(source, filename=self._filename)
        except TemplateSyntaxError as error:
            raise PromptError(
                f"{self.at(error.lineno)}: {_stated(error)}; text that only looks like a template "
                "stands between {% raw %} and {% endraw %}"
            ) from None
        for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            raise PromptError(f"{self.at(node.lineno)}: a template stands alone: pass the other text as a value")
        lines: dict[str, int] = {}
        for name in tree.find_all(nodes.Name):
            lines.setdefault(name.name, name.lineno)
        if "self" in lines:
            raise PromptError(f"{self.at(lines['self'])}: no variable can be called 'self': rename it")
        own = meta.find_undeclared_variables(tree)
        self.names = {name: first + line - 1 for name, line in lines.items() if name in own}
        self._compiled = Template.from_code(env, code, functions)

    def at(self, line: int) -> str:
        """A line of it, as errors name it."""
        shown = "" if self._first > 1 else f" {_begun(self.source)!r}"
        return f"{self.place}{shown}, line {self._first + line - 1}"

    def render(self, values: Mapping[str, Any]) -> str:
        """The text with the values in it.

        Raises:
            PromptError: it cannot be rendered; the error behind it is the cause.
        """
        from jinja2 import TemplateError, UndefinedError
        from jinja2.exceptions import SecurityError

        try:
            return self._compiled.render(values)
        except UndefinedError as error:
            given = ", ".join(values) or "none"
            why = (
                f'{_stated(error)}: pass it in `values` (given: {given}), or write a default, {{{{ x|default("…") }}}}'
            )
            raise self._failed(error, why) from error
        except SecurityError as error:
            why = f"{_stated(error)}: a template only reads public values: compute the rest before"
            raise self._failed(error, why) from error
        except (TemplateError, *_FAILURES) as error:
            why = f"{type(error).__name__}: {_stated(error)}: compute it before, and pass what comes of it"
            raise self._failed(error, why) from error

    def _failed(self, error: Exception, why: str) -> PromptError:
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == self._filename]
        return PromptError(f"{self.at(lines[-1] if lines else 1)}: {why}")

    def __deepcopy__(self, memo: dict[int, Any]) -> _Text:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Text, (self.source, self.place, self._first)


def _stated(error: Exception) -> str:
    return (getattr(error, "message", None) or str(error)).rstrip(".")


def _begun(text: str) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


class PromptTemplateBase(ABC, Generic[Ctx, Out]):
    """What every prompt template is: values of type `Ctx` make messages, and the reply is an `Out`.

    Args:
        output_schema: the form of the reply, such as `OutputSchema(Answer)`; None for text.

    Raises:
        PromptError: the form is none.
    """

    def __init__(self, *, output_schema: OutputForm | None = None) -> None:
        form = getattr(output_schema, "response_format", None)
        if output_schema is not None and (isinstance(output_schema, type) or not callable(form)):
            raise PromptError(
                f"{type(self).__name__}.output_schema: must be an OutputSchema, not {output_schema!r:.60}: "
                "wrap the type, OutputSchema(…)"
            )
        self.output_schema: OutputForm = OutputSchema(str) if output_schema is None else output_schema

    @abstractmethod
    def render_messages(self, values: Ctx | None = None) -> list[dict[str, Any]]:
        """The messages: system first, then user; new ones at each call.

        Args:
            values: a mapping, dataclass, pydantic model or msgspec struct; never changed, never read as a template.

        Raises:
            PromptError: a variable is missing, or the template cannot be rendered.
        """

    def response_format(self) -> dict[str, Any] | None:
        """The Chat Completions `response_format` of the reply; None for text."""
        return self.output_schema.response_format()


class PromptTemplate(PromptTemplateBase[Ctx, Out]):
    """A template of text: a system message, a user message, or both.

    A variable that is not given is an error. Values that no template names are left alone, except where the template
    comes from a text or a file, which declares its variables. What is printed is `str(value)`, so "None" for None.

    Args:
        output_schema: the form of the reply; None for text.
        system_template: what the system message says.
        user_template: what the user message says.

    Raises:
        PromptError: there is no template, or one is empty or malformed; names place and line.
    """

    name: str | None = None
    version: str | None = None
    _file: PromptFile | None = None

    def __init__(
        self,
        *,
        output_schema: OutputForm | None = None,
        system_template: str | None = None,
        user_template: str | None = None,
    ) -> None:
        super().__init__(output_schema=output_schema)
        given = {"system": system_template, "user": user_template}
        self._texts = {
            role: _Text(source, f"{type(self).__name__}.{role}_template")
            for role, source in given.items()
            if source is not None
        }
        if not self._texts:
            raise PromptError(f"{type(self).__name__}: give system_template, user_template, or both")

    @classmethod
    def from_text(cls, text: str, *, output_schema: OutputForm | None = None, place: str = "the prompt's text") -> Self:
        """A template in the format of files: see `isthmus.models.promptfile`.

        Args:
            text: front matter and sections.
            output_schema: the form of the reply; None for text.
            place: where the text stands, for errors.

        Raises:
            PromptError: it does not follow the format, or declares other variables than it uses; names place and line.
        """
        if not isinstance(text, str):
            raise PromptError(f"{place}: must be text, not {type(text).__name__}: from_file reads a file")
        file = parse_prompt(text, place)
        made = cls.__new__(cls)
        PromptTemplateBase.__init__(made, output_schema=output_schema)
        # A file may have its sections in any order; messages have theirs.
        sections = sorted(file.sections.items())
        made._texts = {role: _Text(part.text, place, part.line) for role, part in sections}
        names = {name: line for part in reversed(made._texts.values()) for name, line in part.names.items()}
        file.check_used(
            {name: line for name, line in names.items() if name in file.variables or name not in _FUNCTIONS}
        )
        made.name, made.version, made._file = file.name, file.version or None, file
        return made

    @classmethod
    def from_file(cls, path: str | Path, *, output_schema: OutputForm | None = None) -> Self:
        """A template that a file holds, in UTF-8; read once.

        Args:
            path: the file.
            output_schema: the form of the reply; None for text.

        Raises:
            OSError: the file cannot be read.
            PromptError: it does not follow the format, or declares other variables than it uses; names file and line.
        """
        data = Path(path).read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise PromptError(f"{path}, line {line}: not UTF-8 ({error.reason}): save the file as UTF-8") from None
        return cls.from_text(text, output_schema=output_schema, place=str(path))

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables that the template uses, in order of the alphabet."""
        return tuple(sorted({name for text in self._texts.values() for name in text.names}.difference(_FUNCTIONS)))

    def __repr__(self) -> str:
        called = {"name": self.name, **{role: _begun(text.source) for role, text in self._texts.items()}}
        said = ", ".join(f"{key}={value!r}" for key, value in called.items() if value is not None)
        return f"{type(self).__name__}({said})"

    def render_messages(self, values: Ctx | None = None) -> list[dict[str, Any]]:
        """The system message, then the user message; see `PromptTemplateBase.render_messages`."""
        given = values_by_name(values)
        if self._file is not None:
            given = self._file.values(given)
        return [{"role": role, "content": text.render(given)} for role, text in self._texts.items()]


class MultiPartPromptTemplate(PromptTemplateBase[Ctx, Out]):
    """A template whose messages are lists of parts: text, images, files.

    Args:
        output_schema: the form of the reply; None for text.
        system_parts: the parts of the system message, in order.
        user_parts: the parts of the user message, in order.

    Raises:
        PromptError: there are no parts, or one is none or malformed; names its place.
    """

    def __init__(
        self,
        *,
        output_schema: OutputForm | None = None,
        system_parts: Sequence[Part] = (),
        user_parts: Sequence[Part] = (),
    ) -> None:
        super().__init__(output_schema=output_schema)
        where = type(self).__name__
        given = {"system": system_parts, "user": user_parts}
        checked = {role: _parts(parts, f"{where}.{role}_parts") for role, parts in given.items()}
        self._parts = {role: parts for role, parts in checked.items() if parts}
        if not self._parts:
            raise PromptError(f"{where}: give system_parts, user_parts, or both")

    def __repr__(self) -> str:
        counts = ", ".join(f"{role}_parts={len(parts)}" for role, parts in self._parts.items())
        return f"{type(self).__name__}({counts})"

    def render_messages(self, values: Ctx | None = None) -> list[dict[str, Any]]:
        """The system message, then the user message, each with its parts in order."""
        given = values_by_name(values)
        return [
            {"role": role, "content": [_content(part, given) for part in parts]} for role, parts in self._parts.items()
        ]


def _parts(parts: Any, place: str) -> list[_Text | ImagePart | FilePart]:
    if not isinstance(parts, list | tuple):
        raise PromptError(f"{place}: must be a sequence of parts, not {type(parts).__name__}: write ({parts!r:.40},)")
    found: list[_Text | ImagePart | FilePart] = []
    for number, part in enumerate(parts):
        if not isinstance(part, TextPart | ImagePart | FilePart):
            raise PromptError(
                f"{place}[{number}]: must be a TextPart, ImagePart or FilePart, not {type(part).__name__}"
            )
        found.append(_Text(part.template, f"{place}[{number}]") if isinstance(part, TextPart) else part)
    return found


def _content(part: _Text | ImagePart | FilePart, values: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(part, _Text):
        return {"type": "text", "text": part.render(values)}
    return part_content(part)
