"""Skills: folders of instructions for special tasks, which a model reads only once it needs them.

The model is told each skill's name and description. When it activates one, the text of its `SKILL.md` is put into the
transcript, once, as a message that is no part of the public conversation; other files are read through a second tool.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from isthmus.harness.compaction import keep_whole
from isthmus.harness.errors import SkillFileError
from isthmus.harness.markdown import Document, read_document
from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.shims import BoundShim, PreparedTurn, Shim, TurnState
from isthmus.harness.view import ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX
from isthmus.models.internal import internal_message, is_internal_message
from isthmus.models.results import ToolError, ToolFailure
from isthmus.models.tools import Tool

SKILL_FILE = "SKILL.md"
_NAME_LENGTH, _BODY_LINES = 64, 500
_LENGTHS = {"description": 1024, "compatibility": 500}
_NAME = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_MOST_BYTES, _MOST_LISTED = 262_144, 50

_LISTED = (
    "Skills are instructions for special tasks. When a task fits one of them, call activate_skill with its name before "
    "you begin, and follow what it says."
)


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill as its folder describes it.

    Args:
        name: what it is activated by.
        description: what it does and when to use it.
        body: its instructions.
        folder: where it lives; other files of it may be read.
        compatibility: what it needs, in words.
    """

    name: str
    description: str
    body: str
    folder: Path
    compatibility: str = ""

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Skill:
        """The skill in a folder.

        Args:
            folder: what holds its `SKILL.md`: `name`, at most 64 characters, lower case, digits and single hyphens;
                `description`, at most 1024; perhaps `compatibility`, at most 500; then at most 500 lines. Other keys
                are left to whoever knows them.

        Raises:
            SkillFileError: it does not describe a skill; names file and line.
            OSError: it cannot be read.
        """
        path = Path(folder) / SKILL_FILE
        document = read_document(path, "a skill", error=SkillFileError)
        name = _text(document, "name", path)
        if len(name) > _NAME_LENGTH or name != name.lower() or not _NAME.fullmatch(name):
            raise _wrong(
                path,
                document.head["name"].line,
                f"name {name!r:.80} must be of at most {_NAME_LENGTH} letters in lower case, digits and single hyphens "
                "between them",
            )
        return cls(
            name=name,
            description=" ".join(_text(document, "description", path).split()),
            body=_body(document, path),
            folder=path.parent.resolve(),
            compatibility=_text(document, "compatibility", path) if "compatibility" in document.head else "",
        )

    def file(self, name: str) -> str:
        """The text of a file of the skill.

        Args:
            name: its path within the folder.

        Raises:
            ValueError: it is none of the skill's, is no text in UTF-8, or is longer than 262,144 bytes; says what there
                is.
        """
        try:
            path = (self.folder / name).resolve()
            inside = path.is_relative_to(self.folder) and path.is_file()
            data = path.read_bytes() if inside and path.stat().st_size <= _MOST_BYTES else None
        except (OSError, RuntimeError, ValueError):
            inside, data = False, None
        if not inside:
            there = ", ".join(self.files()) or "none"
            raise ValueError(f"skill {self.name!r} has no file {name!r:.200}; it has: {there}")
        if data is None:
            raise ValueError(f"{name!r} is too long: at most {_MOST_BYTES} bytes can be read")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{name!r} is not text in UTF-8: it cannot be read here") from None

    def files(self) -> tuple[str, ...]:
        """The paths of its other files, the first fifty."""
        found = islice(_files(self.folder), _MOST_LISTED)
        return tuple(sorted(path.relative_to(self.folder).as_posix() for path in found))


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path != folder / SKILL_FILE and path.resolve().is_relative_to(folder):
            yield path


def _wrong(path: Path, line: int, why: str) -> SkillFileError:
    return SkillFileError(f"{path}, line {line}: {why}")


def _text(document: Document, key: str, path: Path) -> str:
    entry = document.head.get(key)
    text = "" if entry is None else entry.text.strip()
    line = 2 if entry is None else entry.line
    if not text:
        raise _wrong(path, line, f"the skill has no {key}: add `{key}: …`")
    most = _LENGTHS.get(key)
    if most is not None and len(text) > most:
        raise _wrong(path, line, f"{key} has {len(text)} characters: at most {most} are read; shorten it")
    return text


def _body(document: Document, path: Path) -> str:
    lines = document.body.count("\n") + 1
    if not document.body:
        raise _wrong(path, document.line, "the skill says nothing: write its instructions after the head")
    if lines > _BODY_LINES:
        raise _wrong(
            path,
            document.line + _BODY_LINES,
            f"the instructions have {lines} lines: at most {_BODY_LINES} are read; move the rest into files beside it",
        )
    return document.body


class SkillsShim(Shim):
    """Offers skills to a model, and keeps which of them are active with the conversation.

    Args:
        folders: what holds `SKILL.md`, or folders that do.

    Raises:
        SkillFileError: a folder holds no skill, one of them is not as it must be, or two have one name; names file and
            line.
        OSError: a folder or a file cannot be read.
    """

    name = "skills"

    def __init__(self, *folders: str | os.PathLike[str]) -> None:
        found: dict[str, Skill] = {}
        for folder in folders:
            for skill in _skills(Path(folder)):
                if skill.name in found:
                    raise SkillFileError(
                        f"{skill.folder / SKILL_FILE}: there is a skill {skill.name!r} in {found[skill.name].folder} "
                        "already: rename one of the two"
                    )
                found[skill.name] = skill
        if not found:
            raise SkillFileError("SkillsShim: give it the folder of a skill, or one that holds such folders")
        self.skills: Mapping[str, Skill] = found
        lines = (f"- {skill.name}: {skill.description}" for skill in found.values())
        self._listing = "\n".join((_LISTED, *lines))
        self._activate, self._read = _forms(found)

    async def bind(self, run: RunIdentity) -> BoundShim:
        """What attends this run."""
        return _BoundSkills(self.skills, self._listing, forms=(self._activate, self._read))


def _skills(folder: Path) -> list[Skill]:
    homes = [folder] if (folder / SKILL_FILE).is_file() else sorted(folder.iterdir())
    found = [Skill.read(home) for home in homes if (home / SKILL_FILE).is_file()]
    if not found:
        raise SkillFileError(f"{folder}: there is no {SKILL_FILE} in it, nor in a folder in it")
    return found


def _forms(names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """How the two tools are declared."""
    skill = {"type": "string", "enum": list(names), "description": "The name of the skill."}
    path = {"type": "string", "description": "The path of the file within the skill's folder."}
    activate = {
        "name": "activate_skill",
        "description": "Read the instructions of a skill and follow them from then on.",
    }
    read = {"name": "read_skill_file", "description": "Read another file of a skill, which its instructions name."}
    return (
        {**activate, "parameters_schema": _object({"name": skill})},
        {**read, "parameters_schema": _object({"skill": skill, "path": path})},
    )


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class _BoundSkills(BoundShim):
    """The skills of one run.

    Args:
        skills: all that there are.
        listing: what the model is told of them.
        forms: how the tools are declared.
    """

    def __init__(
        self, skills: Mapping[str, Skill], listing: str, *, forms: tuple[dict[str, Any], dict[str, Any]]
    ) -> None:
        self._skills = skills
        self._listing = listing
        self._tools = (Tool(**forms[0], handler=self._activate), Tool(**forms[1], handler=self._file))
        self._state: dict[str, Any] = {}

    async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """Keep what was activated out of summaries."""
        self._state = state.shim_state
        keep_whole(transient_state, *map(_origin, self._skills))

    async def prepare_turn(self, turn: PreparedTurn) -> None:
        """List the skills, offer the tools, and see to it that the text of each active skill is in the transcript."""
        self._state = turn.run_state.shim_state
        turn.add_tools(self._tools, require_unique_names=True)
        turn.append_system_instruction(self._listing)
        active = [self._skills[name] for name in self._active() if name in self._skills]
        history = turn.run_state.history
        missing = [skill for skill in active if not any(is_internal_message(m, _origin(skill.name)) for m in history)]
        if missing:
            turn.append_history_items([_message(skill) for skill in missing])

    def _active(self) -> list[str]:
        names: list[str] = self._state.get(_KEY, [])
        return names

    async def _activate(self, args: Mapping[str, Any]) -> str:
        name = args["name"]
        if name in self._active():
            return f"Skill {name!r} is active already: its instructions stand above."
        self._state[_KEY] = [*self._active(), name]
        return f"Skill {name!r} is active: its instructions follow."

    # Not async: files are read in a thread.
    def _file(self, args: Mapping[str, Any]) -> str:
        try:
            return self._skills[args["skill"]].file(args["path"])
        except ValueError as error:
            return ToolFailure(text=f"Error: {error}.", error=ToolError(str(error)))


_KEY = SkillsShim.name + ACTIVE_SKILL_NAMES_STATE_KEY_SUFFIX


def _origin(name: str) -> str:
    return f"{SkillsShim.name}:{name}"


def _message(skill: Skill) -> dict[str, Any]:
    needs = f"Needs: {skill.compatibility}\n\n" if skill.compatibility else ""
    text = f'<skill name="{skill.name}">\n{needs}{skill.body}\n</skill>'
    return internal_message({"role": "user", "content": text}, origin=_origin(skill.name))
