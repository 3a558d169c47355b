"""Templates: what they render, what they refuse, and how an error names the place and the remedy."""

import copy
import json
import pickle
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from timeit import repeat
from types import MappingProxyType
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, computed_field

from isthmus.errors import IsthmusError, PromptError
from isthmus.models import MultiPartPromptTemplate, PromptTemplate, PromptTemplateBase, TextPart
from isthmus.models.promptparts import FilePart, ImagePart
from support.homes import Home, enter_home

NAMES = st.from_regex(r"v_[a-z0-9_]{0,8}", fullmatch=True)
# What templates of several kinds take for their own: braces, tags, comments, formats, JSON.
TRAPS = st.sampled_from(
    ["{}", "a{}", "{{ x }}", "{{ value }}", "{% if x %}", "{# c #}", "{x.__class__}", "%s", "%(x)s", "$x", '{"a": [1]}']
)
TEXTS = st.lists(st.one_of(st.text(), TRAPS, st.sampled_from(["<b>", "&amp;", "\r\n", "\n\n", "'\""]))).map("".join)


def rendered(template: str, **values: Any) -> str:
    """The text of a template with values."""
    made: PromptTemplate[Any, str] = PromptTemplate(user_template=template)
    content = made.render_messages(values)[0]["content"]
    assert isinstance(content, str)
    return content


FIRST = "m.PromptTemplate(user_template='x')"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own; its working folder is the current one."""
    return enter_home(tmp_path, monkeypatch)


class Form:
    """A form of the reply that is no text."""

    def name(self) -> str:
        """Its name."""
        return "form"

    def json_schema(self) -> dict[str, Any]:
        """Its schema."""
        return {"type": "object"}

    def response_format(self) -> dict[str, Any] | None:
        """What a provider is told of it."""
        return {"type": "json_schema", "json_schema": {"name": "form", "schema": self.json_schema()}}


def test_the_system_message_comes_before_the_user_message() -> None:
    """Both templates share the values and make dicts with a role and a string."""
    made: PromptTemplate[Any, str] = PromptTemplate(user_template="Ask {{ name }}.", system_template="Be {{ tone }}.")
    assert made.render_messages({"name": "Ann", "tone": "kind"}) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Ask Ann."},
    ]


@pytest.mark.parametrize(("role", "other"), [("system", "user"), ("user", "system")])
def test_one_template_makes_one_message(role: str, other: str) -> None:
    """A template that was left out makes no message."""
    made: PromptTemplate[Any, str] = PromptTemplate(**{f"{role}_template": "Hi."})
    assert made.render_messages() == [{"role": role, "content": "Hi."}]


def test_a_prompt_without_any_template_is_refused() -> None:
    """There must be a template; the error is a ValueError and one of the library's."""
    for wrong in (lambda: PromptTemplate(), lambda: MultiPartPromptTemplate()):
        with pytest.raises(ValueError, match=r"give system_.*user_") as caught:
            wrong()
        assert isinstance(caught.value, IsthmusError)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_template_is_refused(text: str) -> None:
    """An empty template is never a silent absence of a message."""
    for wrong in (
        lambda: PromptTemplate(system_template=text, user_template="x"),
        lambda: MultiPartPromptTemplate(system_parts=[TextPart(text)]),
    ):
        with pytest.raises(PromptError, match=r"system_(template|parts\[0\]): the template is empty"):
            wrong()


def test_a_template_that_renders_nothing_still_makes_its_message() -> None:
    """What a condition leaves out is an empty text, not a missing message."""
    made: PromptTemplate[Any, str] = PromptTemplate(system_template="{% if x %}y{% endif %}")
    assert made.render_messages({"x": False}) == [{"role": "system", "content": ""}]


def test_the_default_form_of_the_reply_is_text() -> None:
    """Without a schema there is no `response_format`; with one it is the schema's."""
    assert PromptTemplate(user_template="x").response_format() is None
    assert MultiPartPromptTemplate(user_parts=[TextPart("x")]).response_format() is None
    assert PromptTemplate(user_template="x", output_schema=Form()).response_format() == Form().response_format()


@dataclass
class Address:
    """Something nested."""

    city: str


@dataclass
class AsDataclass:
    """Values of a dataclass."""

    name: str
    home: Address


class AsStruct(msgspec.Struct):
    """Values of a struct."""

    name: str
    home: Address


class AsModel(BaseModel):
    """Values of a pydantic model."""

    name: str
    home: Address


class AsTypedDict(TypedDict):
    """Values of a typed dict."""

    name: str
    home: Address


HOME = Address("Rome")
FORMS: list[Any] = [
    {"name": "Ann", "home": {"city": "Rome"}},
    MappingProxyType({"name": "Ann", "home": HOME}),
    AsTypedDict(name="Ann", home=HOME),
    AsDataclass("Ann", HOME),
    AsModel(name="Ann", home=HOME),
    AsStruct("Ann", HOME),
]


@pytest.mark.parametrize("values", FORMS, ids=lambda values: type(values).__name__)
def test_values_come_in_any_typed_form(values: Any) -> None:
    """Mapping, typed dict, dataclass, model and struct render the same."""
    made: PromptTemplate[Any, str] = PromptTemplate(user_template="{{ name }} of {{ home.city }}")
    assert made.render_messages(values)[0]["content"] == "Ann of Rome"


def test_computed_fields_of_a_model_are_values_too() -> None:
    """A pydantic model gives its computed fields and its extra ones."""

    class Person(BaseModel, extra="allow"):
        first: str

        @computed_field  # type: ignore[prop-decorator]
        @property
        def loud(self) -> str:
            return self.first.upper()

    made: PromptTemplate[Any, str] = PromptTemplate(user_template="{{ loud }} {{ more }}")
    assert made.render_messages(Person(first="ann", more=1))[0]["content"] == "ANN 1"  # type: ignore[call-arg]


@settings(max_examples=150)
@given(value=TEXTS)
def test_any_text_passes_through_unchanged(value: str) -> None:
    """F28: whatever a value holds, braces, tags, JSON or markup, it stands in the message as it is."""
    assert rendered("{{ value }}", value=value) == value
    assert rendered("<{{ value }}|{{ other }}>", value=value, other="{{ value }}") == f"<{value}|{{{{ value }}}}>"


@settings(max_examples=100)
@given(value=st.recursive(TEXTS | st.integers() | st.booleans() | st.none(), st.lists, max_leaves=6))
def test_json_in_a_prompt_reads_back_as_the_value(value: Any) -> None:
    """F28: `tojson` writes JSON without escapes for HTML, whatever the texts in it."""
    text = rendered("{{ value|tojson }}", value=value)
    assert json.loads(text) == value
    assert json.loads(rendered("{{ value|tojson(indent=2) }}", value=value)) == value
    assert "\\u003c" not in rendered("{{ v|tojson }}", v="<b>")


@settings(max_examples=50)
@given(texts=st.dictionaries(NAMES, TEXTS, min_size=1, max_size=4))
def test_messages_are_the_pieces_in_order(texts: dict[str, str]) -> None:
    """Several variables keep their places, and the values are left as they were."""
    before = dict(texts)
    template = "|".join(f"{{{{ {name} }}}}" for name in texts)
    made: PromptTemplate[Any, str] = PromptTemplate(user_template=template)
    assert made.render_messages(texts)[0]["content"] == "|".join(texts.values())
    assert texts == before


@pytest.mark.parametrize("text", ['{"a": {"b": 1}}', "f(x) { return; }", "100% {x} $y", "a }} b"])
def test_single_braces_in_a_template_are_text(text: str) -> None:
    """F28: JSON and code in a template need no escapes."""
    assert rendered(text) == text


def test_raw_blocks_hold_what_looks_like_a_template() -> None:
    """Double braces stand between raw tags."""
    assert rendered("{% raw %}{{ x }}{% endraw %}") == "{{ x }}"


def test_blocks_leave_no_empty_lines() -> None:
    """The newline after a tag is trimmed; markup is not escaped."""
    assert rendered("{% for x in xs %}\n- {{ x }}\n{% endfor %}\nend", xs=["<a>", "b&c"]) == "- <a>\n- b&c\nend"


class Colour(StrEnum):
    """An enum of texts."""

    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "None"), (True, "True"), (10**30, str(10**30)), (0.1, "0.1"), ([1, "a"], "[1, 'a']"), (Colour.RED, "red")],
)
def test_what_is_printed_is_str(value: Any, text: str) -> None:
    """A value that is no text is printed as `str` has it, None as "None"; large numbers stay exact."""
    assert rendered("{{ value }}", value=value) == text


def test_none_can_have_a_default() -> None:
    """A template says itself what stands for None or for what is missing."""
    assert rendered("{{ a or '-' }}{{ b|default('+') }}", a=None) == "-+"


@pytest.mark.parametrize(
    "template",
    [
        "{{ tier }}",
        "{{ [tier] }}",
        "{{ {'a': tier} }}",
        "{{ tier|upper }}",
        "{% if tier %}x{% endif %}",
        "{% for x in tier %}{% endfor %}",
        "{{ tier ~ 'x' }}",
        "{{ tier.name }}",
        "{{ [tier]|tojson }}",
    ],
)
def test_a_missing_variable_is_an_error(template: str) -> None:
    """F28: nothing that is missing is ever printed, wherever it stands."""
    with pytest.raises(PromptError, match=r"user_template .*line 1: "):
        rendered(template, name="x")


@pytest.mark.parametrize("name", ["dict", "lipsum", "cycler", "joiner", "range", "namespace"])
def test_no_function_of_the_language_stands_for_a_missing_variable(name: str) -> None:
    """F28: a variable that is called like a function of the template language is missing when it is not given."""
    assert rendered(f"{{{{ {name} }}}}", **{name: "x"}) == "x"
    with pytest.raises(PromptError, match="line 1"):
        rendered(f"{{{{ {name} }}}}")


def test_the_error_names_template_line_variable_and_what_was_given() -> None:
    """A missing variable is named with its place, what was given instead, and both remedies; never with a value."""
    made: PromptTemplate[Any, str] = PromptTemplate(system_template="You review alerts.\nTier: {{ portfolio_tier }}")
    with pytest.raises(PromptError) as caught:
        made.render_messages({"portfolio_teir": "s3cret", "day": 1})
    text = str(caught.value)
    for said in ("PromptTemplate.system_template", "You review alerts.", "line 2", "'portfolio_tier'"):
        assert said in text
    assert "given: portfolio_teir, day" in text
    assert "default" in text
    assert "s3cret" not in text


def test_values_that_no_template_names_are_left_alone() -> None:
    """A context may hold more than the template needs."""
    assert rendered("{{ a }}", a=1, b=2) == "1"


@pytest.mark.parametrize(
    "template",
    [
        "{{ value.__class__ }}",
        "{{ value['__class__'] }}",
        "{{ value|attr('__class__') }}",
        "{{ [value]|map(attribute='__class__')|list }}",
        "{{ [value.__class__] }}",
        "{{ '{0.__class__}'.format(value) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ value._hidden }}",
        "{{ run.__globals__ }}",
        "{{ run.__code__ }}",
    ],
)
def test_attribute_tricks_are_refused(template: str) -> None:
    """F28: no underscore and no internal is reached, in none of the ways there are."""
    with pytest.raises(PromptError, match=r"line 1: .*(unsafe|no attribute)"):
        rendered(template, value=Address("Rome"), run=rendered)


@pytest.mark.parametrize("template", ["{{ range(10**9)|list }}", "{% for i in range(1000000) %}{% endfor %}"])
def test_huge_ranges_are_refused(template: str) -> None:
    """F28: a template counts to no more than 100,000."""
    with pytest.raises(PromptError, match=r"line 1: .*[Rr]ange"):
        rendered(template)
    assert rendered("{% for i in range(3) %}{{ i }}{% endfor %}") == "012"


@pytest.mark.parametrize("change", ["xs.append(1)", "xs.clear()", "names.update(a=1)", "names.pop('a')"])
def test_a_template_cannot_change_the_values(change: str) -> None:
    """F22: what would change a list or a dict of the caller is refused."""
    values: dict[str, Any] = {"xs": [1], "names": {"a": 1}}
    before = copy.deepcopy(values)
    with pytest.raises(PromptError, match="only reads"):
        rendered(f"{{{{ {change} }}}}", **values)
    assert values == before


@pytest.mark.parametrize(
    "value",
    [b"x", bytearray(b"x"), str.upper, "x".upper, int, len, object(), (x for x in "ab")],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_text_is_not_printed(value: Any) -> None:
    """Bytes, functions, classes, and objects that show nothing but their address are a mistake, and refused."""
    with pytest.raises(PromptError, match="is no text: compute it before"):
        rendered("{{ value }}", value=value)


WRONG: list[tuple[Any, str]] = [
    (lambda: PromptTemplate(system_template="a\n{{ x"), r"system_template 'a', line 2: .*raw"),
    (lambda: PromptTemplate(system_template="{% if x %}"), r"line 1: .*endif"),
    (lambda: PromptTemplate(system_template="a {# b"), r"line 1: .*comment.*raw"),
    (lambda: PromptTemplate(user_template="{{ x|nope }}"), r"user_template .*line 1: .*nope"),
    (lambda: PromptTemplate(user_template="{% include 'x' %}"), r"line 1: a template stands alone: pass"),
    (lambda: PromptTemplate(user_template="{% extends 'x' %}"), r"line 1: a template stands alone: pass"),
    (lambda: PromptTemplate(user_template="{% from 'x' import y %}"), r"line 1: a template stands alone: pass"),
    (lambda: PromptTemplate(user_template="{{ self }}"), r"line 1: .*'self': rename"),
    (lambda: PromptTemplate(user_template=3), r"user_template: .*text, not int"),  # type: ignore[arg-type]
    (lambda: PromptTemplate(user_template="x", output_schema=int), r"output_schema: .*OutputSchema\("),  # type: ignore[arg-type]
    (lambda: PromptTemplate(user_template="x", output_schema=Form), r"output_schema: .*OutputSchema\("),  # type: ignore[arg-type]
    (lambda: PromptTemplate(user_template="x", output_schema={}), r"output_schema: .*OutputSchema\("),  # type: ignore[arg-type]
    (lambda: MultiPartPromptTemplate(user_parts="x"), r"user_parts: .*sequence of parts, not str"),  # type: ignore[arg-type]
    (lambda: MultiPartPromptTemplate(user_parts=TextPart("x")), r"user_parts: .*write \("),  # type: ignore[arg-type]
    (lambda: MultiPartPromptTemplate(user_parts=["x"]), r"user_parts\[0\]: must be a TextPart"),  # type: ignore[list-item]
    (lambda: MultiPartPromptTemplate(user_parts=[TextPart("a"), TextPart("{{")]), r"user_parts\[1\] .*line 1"),
    (lambda: PromptTemplate(user_template="x").render_messages("x"), r"values: .*not str: pass them by name"),
    (lambda: PromptTemplate(user_template="x").render_messages([("a", 1)]), r"values: .*not list: pass"),
    (lambda: PromptTemplate(user_template="x").render_messages({1: "a"}), r"values: a name must be text, not 1"),
    (lambda: rendered("\n{{ a + 1 }}", a="x"), r"line 2: TypeError: .*compute it before"),
    (lambda: rendered("{{ 1 / a }}", a=0), r"line 1: ZeroDivisionError"),
    (lambda: rendered("{{ a.nope }}", a={}), r"line 1: .*'nope'.*values"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_use_is_named_with_place_and_remedy(wrong: Any, said: str) -> None:
    """Each wrong use fails with the library's error, which says where and what to do; what can be, at construction."""
    with pytest.raises(PromptError, match=said):
        wrong()


def test_the_error_behind_a_failed_rendering_is_its_cause() -> None:
    """Nothing that went wrong inside is hidden."""
    with pytest.raises(PromptError) as caught:
        rendered("{{ 1 / a }}", a=0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_of_the_callers_own_code_stays_its_own() -> None:
    """What a value's own `str` raises on purpose is not taken for the template's fault."""

    class Own(Exception):
        """The application's own."""

    class Value:
        def __str__(self) -> str:
            raise Own

    with pytest.raises(Own):
        rendered("{{ value }}", value=Value())


def test_parts_stand_in_the_order_of_the_template() -> None:
    """Each message is a list of parts in the wire form of its kind."""
    made: MultiPartPromptTemplate[Any, str] = MultiPartPromptTemplate(
        system_parts=(TextPart("Be {{ tone }}."),),
        user_parts=[
            ImagePart("iVBO", "image/png"),
            TextPart("What is {{ what }}?"),
            FilePart("JVBE", "application/pdf"),
        ],
    )
    assert made.render_messages({"tone": "kind", "what": "this"}) == [
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "high"},
                {"type": "text", "text": "What is this?"},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE"}},
            ],
        },
    ]


def test_each_rendering_is_new() -> None:
    """F22: changing the messages of one rendering changes no other, and not the template."""
    made: MultiPartPromptTemplate[Any, str] = MultiPartPromptTemplate(user_parts=[FilePart("JVBE", "application/pdf")])
    first = made.render_messages()
    before = copy.deepcopy(first)
    first[0]["content"][0]["file"].clear()
    first[0]["content"].append("x")
    assert made.render_messages() == before


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_template_survives_a_copy(copied: Any) -> None:
    """Copied or pickled, a template renders the same."""
    for made in (PromptTemplate(user_template="{{ a }}"), MultiPartPromptTemplate(user_parts=[TextPart("{{ a }}")])):
        assert copied(made).render_messages({"a": 1}) == made.render_messages({"a": 1})


def test_a_template_says_what_it_uses() -> None:
    """The variables of all its texts, without the language's functions and the template's own names."""
    made: PromptTemplate[Any, str] = PromptTemplate(
        system_template="{% set own = b %}{{ own }}", user_template="{% for i in range(2) %}{{ i }}{{ a }}{% endfor %}"
    )
    assert made.variables == ("a", "b")
    assert repr(PromptTemplate(user_template="x" * 99)) == f"PromptTemplate(user='{'x' * 32}…')"
    assert repr(MultiPartPromptTemplate(user_parts=[TextPart("x")])) == "MultiPartPromptTemplate(user_parts=1)"


def test_other_templates_are_written_by_subclassing() -> None:
    """The base asks for `render_messages` alone."""

    class Fixed(PromptTemplateBase[Any, str]):
        def render_messages(self, values: Any = None) -> list[dict[str, Any]]:
            return [{"role": "user", "content": "x"}]

    assert Fixed().response_format() is None
    with pytest.raises(TypeError, match="render_messages"):
        PromptTemplateBase()  # type: ignore[abstract]


def test_the_template_language_is_loaded_with_the_first_template(home: Home) -> None:
    """F31: neither the models' door, nor its prompt names, nor the harness load the template language."""
    names = "import isthmus.models as m, isthmus.harness\nm.PromptTemplate, m.PromptSpec, m.TextPart"
    before, after = (
        home.run("-c", f"{code}\nimport sys\nprint(*sys.modules)") for code in (names, f"{names}\n{FIRST}")
    )
    assert "isthmus.models.prompts" in before.stdout.split()
    assert not {"jinja2", "pydantic"} & set(before.stdout.split())
    assert "jinja2" in after.stdout.split()
    assert "pydantic" not in after.stdout.split()


def test_a_template_is_compiled_once() -> None:
    """Rendering costs a small part of making the template, so nothing is compiled again."""
    source = "You review {{ portfolio_tier }} portfolio risk alerts."
    made: PromptTemplate[Any, str] = PromptTemplate(system_template=source)
    render = min(repeat(lambda: made.render_messages({"portfolio_tier": "x"}), number=50, repeat=5))
    make = min(repeat(lambda: PromptTemplate(system_template=source), number=50, repeat=3))
    assert render * 5 < make


class Faulty:
    """A value whose property and text fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def part(self) -> str:
        """Fails."""
        raise self._error

    def __str__(self) -> str:
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("mine"), OSError("mine"), AssertionError("mine"), KeyError("mine")])
@pytest.mark.parametrize("template", ["{{ x.part }}", "{{ x }}", "{{ [1]|map('string')|join ~ x }}"])
def test_a_value_that_fails_names_the_template(error: Exception, template: str) -> None:
    """What a value's own code raises is a PromptError with the place, and the error as its cause."""
    with pytest.raises(PromptError, match=r"user_template .*line 1: .*mine.*compute it before") as caught:
        rendered(template, x=Faulty(error))
    assert caught.value.__cause__ is error


def test_a_macro_without_an_end_is_refused() -> None:
    """Recursion without an end is a PromptError too."""
    with pytest.raises(PromptError, match="line 1: RecursionError"):
        rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")


@pytest.mark.parametrize("template", ["{{ x|tojson }}", "{{ [1, x]|tojson }}", "{{ {'a': [x]}|tojson(2) }}"])
def test_a_missing_variable_in_json_is_named(template: str) -> None:
    """A variable that is missing is named by `tojson` as by any other use of it."""
    with pytest.raises(PromptError, match="'x' is undefined: pass it in `values`"):
        rendered(template)


def test_models_have_their_json() -> None:
    """`tojson` writes pydantic models and dataclasses, inside of other values too."""

    class Row(BaseModel):
        a: int = 10**20
        b: str = "<é>"

    expected = '{"a":100000000000000000000,"b":"<é>"}'
    assert rendered("{{ x|tojson }}", x=Row()) == expected
    assert rendered("{{ x|tojson }}", x={"rows": [Row()]}) == f'{{"rows":[{expected}]}}'
    with pytest.raises(PromptError, match="line 1"):
        rendered("{{ x|tojson }}", x={"rows": [object()]})


def test_a_lenient_undefined_is_no_text() -> None:
    """An undefined value of somebody else's template, passed as a value, is an error and not silently empty."""
    from jinja2 import Undefined

    with pytest.raises(PromptError, match="Undefined is no text"):
        rendered("{{ x }}", x=Undefined(name="y"))


def test_a_text_that_is_none_is_refused() -> None:
    """`from_text` of something else than text names what it got."""
    with pytest.raises(PromptError, match=r"must be text, not \w*Path: from_file"):
        PromptTemplate.from_text(Path("prompt"))  # type: ignore[arg-type]
