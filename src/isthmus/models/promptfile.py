"""The format of prompts that are kept in files: front matter between two `+++` lines, then sections.

    +++
    name = "risk_review"
    version = "2"

    [variables]
    portfolio_tier = "str"
    tone = { type = "str", description = "How it sounds.", default = "plain" }
    +++

    +++ system
    You review {{ portfolio_tier }} portfolio alerts. Be {{ tone }}.

    +++ user
    Summarise today's alerts.

The front matter is TOML, which the standard library reads; the text is UTF-8. Knows nothing of the template language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from isthmus.errors import PromptError
from isthmus.models.promptvalues import TYPES, Variable, declared_values, fits, instead

_FENCE = "+++"
_SECTION = re.compile(r"\+\+\+[ \t]+(\w+)[ \t]*")
_SECTIONS = ("system", "user")
_KEYS = ("name", "version", "description", "variables")
_VARIABLE_KEYS = ("type", "description", "default")


class Section(msgspec.Struct, frozen=True):
    """The text of a section, and the line of the file that it begins at."""

    text: str
    line: int


class PromptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as its file has it.

    Args:
        place: the file, for errors.
        name: what the prompt is called.
        version: which one it is, as text.
        description: what it is for.
        variables: the values that it takes, by name.
        sections: "system", "user", or both.
    """

    place: str
    name: str
    version: str
    description: str
    variables: Mapping[str, Variable]
    sections: Mapping[str, Section]

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is given, with defaults filled in.

        Raises:
            PromptError: a value is missing, unknown, or of another type than is declared.
        """
        return declared_values(self.variables, given, place=self.place)

    def check_used(self, used: Mapping[str, int]) -> None:
        """See that each variable that is declared is used, and the other way round.

        Args:
            used: the variables of all sections, with the line of the file that each is first used at.

        Raises:
            PromptError: one is not.
        """
        for name, line in used.items():
            if name not in self.variables:
                raise PromptError(
                    f'{self.place}, line {line}: {name!r} is not declared: add `{name} = "any"` '
                    f"under [variables]{instead(name, self.variables)}"
                )
        for name, variable in self.variables.items():
            if name not in used:
                raise PromptError(
                    f"{self.place}, line {variable.line}: {name!r} is declared and never used: "
                    f"use it or remove it{instead(name, used)}"
                )


def parse_prompt(text: str, place: str) -> PromptFile:
    """Read a prompt's text.

    Args:
        text: the whole of the file.
        place: its path, for errors.

    Raises:
        PromptError: it does not follow the format; names place and line.
    """
    import tomllib

    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        raise PromptError(f"{place}, line 1: a prompt begins with a line `{_FENCE}` and its front matter")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == _FENCE), None)
    if end is None:
        raise PromptError(f"{place}, line 1: the front matter has no end: put a line `{_FENCE}` after it")
    front = _Front(lines[1:end], place)
    try:
        # The empty line stands for the fence, so that the lines in the parser's errors are those of the file.
        given = tomllib.loads("\n".join(["", *lines[1:end]]))
    except ValueError as error:
        raise PromptError(f"{place}: the front matter is not TOML: {error}") from None
    front.check_keys(given, _KEYS, "the front matter")
    return PromptFile(
        place=place,
        name=front.text(given, "name", required=True),
        version=front.text({**given, "version": _as_text(given.get("version", ""))}, "version"),
        description=front.text(given, "description"),
        variables=front.variables(given.get("variables", {})),
        sections=_sections(lines, end + 1, place),
    )


def _as_text(version: Any) -> Any:
    return str(version) if isinstance(version, int | float) and not isinstance(version, bool) else version


class _Front:
    """The front matter while it is read."""

    def __init__(self, lines: list[str], place: str) -> None:
        self._lines = lines
        self._place = place

    def line(self, key: str) -> int:
        """The line of the file where a key is set; 1 where none is found."""
        quoted = rf"""["']?{re.escape(key)}["']?\s*"""
        setting = re.compile(rf"\s*(?:{quoted}[=.]|\[\s*(?:variables\s*\.\s*)?{quoted}\])")
        return next((number for number, line in enumerate(self._lines, 2) if setting.match(line)), 1)

    def fail(self, key: str, why: str) -> PromptError:
        """The error of a key."""
        return PromptError(f"{self._place}, line {self.line(key)}: {why}")

    def check_keys(self, given: Mapping[str, Any], known: tuple[str, ...], of: str) -> None:
        """Refuse a key that nobody reads."""
        for key in given:
            if key not in known:
                raise self.fail(key, f"{of} has no {key!r}{instead(key, known)}")

    def text(self, given: Mapping[str, Any], key: str, *, required: bool = False) -> str:
        """A key's text."""
        value = given.get(key, "")
        if not isinstance(value, str):
            raise self.fail(key, f"{key} must be text, not {type(value).__name__}: put it in quotes")
        if required and not value.strip():
            raise self.fail(key, f'a prompt needs a name: write {key} = "…" in the front matter')
        return value

    def variables(self, given: Any) -> dict[str, Variable]:
        """The variables, each by its type's name or by a table."""
        if not isinstance(given, Mapping):
            raise self.fail("variables", 'variables must be a table: write [variables], then name = "str"')
        return {name: self._variable(name, form) for name, form in given.items()}

    def _variable(self, name: str, form: Any) -> Variable:
        if isinstance(form, str):
            form = {"type": form}
        if not isinstance(form, Mapping):
            raise self.fail(name, f"variable {name!r} must be a type's name or a table of {', '.join(_VARIABLE_KEYS)}")
        if not name.isidentifier() or name.startswith("_"):
            raise self.fail(name, f"{name!r} cannot name a variable: use letters, digits and _, a letter first")
        self.check_keys(form, _VARIABLE_KEYS, f"variable {name!r}")
        kind = form.get("type", "any")
        if not isinstance(kind, str) or kind not in TYPES:
            raise self.fail(name, f"variable {name!r} has no type {kind!r}: use one of {', '.join(TYPES)}")
        if "default" in form and not fits(form["default"], kind):
            raise self.fail(name, f"the default of {name!r} must be {kind}, not {type(form['default']).__name__}")
        return Variable(
            type=kind,
            description=self.text(form, "description"),
            required="default" not in form,
            default=form.get("default"),
            line=self.line(name),
        )


def _sections(lines: list[str], start: int, place: str) -> dict[str, Section]:
    heads = [(number, match[1]) for number in range(start, len(lines)) if (match := _SECTION.fullmatch(lines[number]))]
    first = heads[0][0] if heads else len(lines)
    for number in range(start, first):
        if lines[number].strip():
            raise PromptError(
                f"{place}, line {number + 1}: text outside a section: put `{_FENCE} system` (or user) before it"
            )
    if not heads:
        raise PromptError(f"{place}, line {start}: no section: write `{_FENCE} system` (or user), then its text")
    found: dict[str, Section] = {}
    for (number, name), after in zip(heads, [*(number for number, _ in heads[1:]), len(lines)], strict=True):
        if name not in _SECTIONS:
            ways = " and ".join(_SECTIONS)
            raise PromptError(
                f"{place}, line {number + 1}: no section is called {name!r}: there are {ways}; "
                "a line of text that looks like this needs a space before it"
            )
        if name in found:
            raise PromptError(f"{place}, line {number + 1}: a second section {name!r}: put both into one")
        found[name] = _section(lines, number + 1, after)
        if not found[name].text:
            raise PromptError(f"{place}, line {number + 1}: section {name!r} is empty: write its text or remove it")
    return found


def _section(lines: list[str], start: int, end: int) -> Section:
    while start < end and not lines[start].strip():
        start += 1
    return Section("\n".join(lines[start:end]).rstrip(), start + 1)
