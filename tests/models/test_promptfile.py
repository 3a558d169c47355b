"""Prompts in files: the format, and errors that name file and line."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import PromptError
from isthmus.models import PromptTemplate
from isthmus.models.promptfile import parse_prompt

REVIEW = """+++
name = "risk_review"
version = "2"
description = "Reviews alerts."

[variables]
portfolio_tier = "str"
tone = { type = "str", description = "How it sounds.", default = "plain" }

[variables.limit]
type = "int"
default = 3
+++

+++ system
You review {{ portfolio_tier }} portfolios.
Be {{ tone }}.

+++ user

List {{ limit }} alerts.
"""


@pytest.fixture
def review(tmp_path: Path) -> Path:
    """The example as a file."""
    path = tmp_path / "review.prompt"
    path.write_text(REVIEW, encoding="utf-8")
    return path


def test_a_file_is_a_template(review: Path) -> None:
    """Name, version and variables are the file's; the sections are its messages, defaults filled in."""
    made: PromptTemplate[Any, str] = PromptTemplate.from_file(review)
    assert (made.name, made.version, made.variables) == ("risk_review", "2", ("limit", "portfolio_tier", "tone"))
    assert made.render_messages({"portfolio_tier": "retail"}) == [
        {"role": "system", "content": "You review retail portfolios.\nBe plain."},
        {"role": "user", "content": "List 3 alerts."},
    ]
    assert PromptTemplate.from_text(REVIEW).render_messages({"portfolio_tier": "a", "limit": 1})[1]["content"][5] == "1"


def test_what_a_file_says_of_its_variables() -> None:
    """A variable has a type, a description, and is required unless it has a default."""
    variables = parse_prompt(REVIEW, "f").variables
    assert {name: (each.type, each.required, each.default) for name, each in variables.items()} == {
        "portfolio_tier": ("str", True, None),
        "tone": ("str", False, "plain"),
        "limit": ("int", False, 3),
    }
    assert variables["tone"].description == "How it sounds."
    assert parse_prompt(REVIEW, "f").description == "Reviews alerts."


@pytest.mark.parametrize("form", ["\r\n", "\ufeff"])
def test_windows_files_read_the_same(form: str) -> None:
    """A byte order mark and other line ends make no difference."""
    text = REVIEW.replace("\n", form) if form == "\r\n" else form + REVIEW
    assert PromptTemplate.from_text(text).render_messages({"portfolio_tier": "é"}) == PromptTemplate.from_text(
        REVIEW
    ).render_messages({"portfolio_tier": "é"})


def test_a_prompt_may_take_no_variables() -> None:
    """Without variables there is no table of them; a number is a version too."""
    made: PromptTemplate[Any, str] = PromptTemplate.from_text("+++\nname='a'\nversion=1.5\n+++\n+++ user\nHi {x}.")
    assert (made.version, made.variables) == ("1.5", ())
    assert made.render_messages() == [{"role": "user", "content": "Hi {x}."}]


def test_sections_may_stand_in_any_order() -> None:
    """The system message comes first, however the file has it."""
    made: PromptTemplate[Any, str] = PromptTemplate.from_text("+++\nname='a'\n+++\n+++ user\nU\n+++ system\nS")
    assert [message["content"] for message in made.render_messages()] == ["S", "U"]


@settings(max_examples=60)
@given(text=st.text())
def test_any_value_passes_through_a_file(text: str) -> None:
    """F28: a value is never read as front matter, section or template."""
    made: PromptTemplate[Any, str] = PromptTemplate.from_text(
        '+++\nname = "x"\n[variables]\nv = "str"\n+++\n+++ user\n<{{ v }}>'
    )
    for value in (text, f"+++ system\n{text}", "{{ v }}"):
        assert made.render_messages({"v": value}) == [{"role": "user", "content": f"<{value}>"}]


def changed(old: str, new: str) -> str:
    """The example with one thing changed."""
    assert old in REVIEW
    return REVIEW.replace(old, new)


WRONG: list[tuple[str, str]] = [
    (changed("{{ limit }}", "all"), r"line 10: 'limit' is declared and never used: use it or remove it"),
    (changed("Be {{ tone }}.", "Be."), r"line 8: 'tone' is declared and never used"),
    (changed("Be {{ tone }}.", "Be {{ tone }} in {{ place }}."), r"line 17: 'place' is not declared: add"),
    (changed("{{ limit }}", "{{ limmit }}"), r"line 21: 'limmit' is not declared.*did you mean 'limit'"),
    (changed("{{ limit }}", "{{ limit }"), r"line 21: unexpected '}'"),
    (changed('version = "2"', "version = "), r"TOML: .*line 3"),
    (changed('version = "2"', "version = [2]"), r"line 3: version must be text, not list: put it in quotes"),
    (changed("version", "verson"), r"line 3: the front matter has no 'verson'; did you mean 'version'"),
    (changed('name = "risk_review"', "name = 3"), r"line 2: name must be text"),
    (changed('name = "risk_review"\n', ""), r"line 1: a prompt needs a name: write name = "),
    (changed('type = "int"', 'type = "integer"'), r"line 10: variable 'limit' has no type 'integer': use one of any,"),
    (changed("default = 3", 'default = "3"'), r"line 10: the default of 'limit' must be int, not str"),
    (changed("default = 3", "defalt = 3"), r"line 12: variable 'limit' has no 'defalt'; did you mean 'default'"),
    (changed('portfolio_tier = "str"', "portfolio_tier = 3"), r"line 7: variable 'portfolio_tier' must be a type's"),
    (changed('portfolio_tier = "str"', '"portfolio tier" = "str"'), r"line 7: 'portfolio tier' cannot name a variable"),
    (
        changed("[variables]\n", "variables = 3\n").split("portf")[0] + "+++\n+++ user\nx",
        r"line 6: variables must be a",
    ),
    (changed("+++ user", "+++ assistant"), r"line 19: no section is called 'assistant': there are system and user"),
    (changed("+++ user", "+++ system"), r"line 19: a second section 'system': put both into one"),
    (changed("List {{ limit }} alerts.", ""), r"line 19: section 'user' is empty: write its text or remove it"),
    (changed("+++ system", "system:"), r"line 15: text outside a section: put `\+\+\+ system`"),
    (REVIEW.split("+++ system")[0], r"line 13: no section: write `\+\+\+ system`"),
    ("You review.", r"line 1: a prompt begins with a line `\+\+\+`"),
    ("", r"line 1: a prompt begins with a line `\+\+\+`"),
    ('+++\nname = "x"\n', r"line 1: the front matter has no end: put"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_fault_is_named_with_file_and_line(text: str, said: str, tmp_path: Path) -> None:
    """F28: what does not fit fails when the file is read, with the file, the line and the remedy."""
    path = tmp_path / "wrong.prompt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PromptError, match=said) as caught:
        PromptTemplate.from_file(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """The error names file and line, and says how to save it."""
    path = tmp_path / "old.prompt"
    path.write_bytes(b"+++\nname = 'caf\xe9'\n+++\n")
    with pytest.raises(PromptError, match=r"old.prompt, line 2: not UTF-8 .*save the file as UTF-8"):
        PromptTemplate.from_file(path)


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    """A missing file is reported as everywhere."""
    with pytest.raises(FileNotFoundError):
        PromptTemplate.from_file(tmp_path / "none")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, r"line 7: 'portfolio_tier' is missing: pass it in `values` \(given: none\)"),
        ({"portfolio_tier": 3}, r"line 7: 'portfolio_tier' must be str, not int: pass another value"),
        ({"portfolio_tier": "a", "limit": True}, r"line 10: 'limit' must be int, not bool"),
        ({"portfolio_tier": "a", "tonne": "b"}, r"it takes no 'tonne'; did you mean 'tone'"),
    ],
)
def test_values_are_held_against_the_declaration(values: dict[str, Any], said: str, review: Path) -> None:
    """Missing, unknown and wrongly typed values fail before anything is rendered, with file and remedy."""
    made: PromptTemplate[Any, str] = PromptTemplate.from_file(review)
    with pytest.raises(PromptError, match=said) as caught:
        made.render_messages(values)
    assert str(review) in str(caught.value)


def test_a_fault_in_rendering_names_the_line_of_the_file(review: Path) -> None:
    """Lines are counted from the top of the file, not of the section."""
    review.write_text(changed("List {{ limit }}", "List\n{{ limit.x }}"), encoding="utf-8")
    with pytest.raises(PromptError, match=r"review.prompt, line 22: 'int object' has no attribute 'x'"):
        PromptTemplate.from_file(review).render_messages({"portfolio_tier": "a"})


def test_a_variable_may_be_called_like_a_function_of_the_language() -> None:
    """A declared `range` is a variable; an undeclared one is the function."""
    text = '+++\nname = "x"\n[variables]\nrange = "str"\n+++\n+++ user\n{{ range }}'
    assert PromptTemplate.from_text(text).render_messages({"range": "1-2"})[0]["content"] == "1-2"
    loop = '+++\nname = "x"\n+++\n+++ user\n{% for i in range(2) %}{{ i }}{% endfor %}'
    assert PromptTemplate.from_text(loop).render_messages()[0]["content"] == "01"


def test_a_template_from_a_file_survives_a_copy(review: Path) -> None:
    """Pickled, it renders the same and keeps its name."""
    made: PromptTemplate[Any, str] = PromptTemplate.from_file(review)
    again = pickle.loads(pickle.dumps(made))
    assert again.name == "risk_review"
    assert again.render_messages({"portfolio_tier": "a"}) == made.render_messages({"portfolio_tier": "a"})


def test_a_number_that_python_will_not_read_is_an_error_of_the_file() -> None:
    """An integer with more digits than Python reads names the file, as any other front matter that is wrong."""
    text = REVIEW.replace('version = "2"', f"version = {'9' * 5000}")
    with pytest.raises(PromptError, match=r"p\.prompt: the front matter is not TOML"):
        parse_prompt(text, "p.prompt")
