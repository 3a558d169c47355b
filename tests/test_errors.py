"""The tree of errors."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from isthmus.chain import Attempt
from isthmus.errors import (
    AdapterError,
    ChainExhausted,
    ConfigError,
    ContextOverflowError,
    CredentialsError,
    CutReason,
    ErrorClass,
    InvalidRequestError,
    IsthmusError,
    MissingDependencyError,
    ModelBehaviorError,
    ModelsException,
    PromptError,
    ProtocolError,
    RefusedError,
    RunErrorDetails,
    TierError,
    ToolDefinitionError,
    TransientError,
    UnavailableError,
    UnclassifiedError,
    tier_error,
)
from isthmus.models.events import StepResult, Text
from isthmus.models.fold import chain_of_causes, classify

CLASSES = {
    "transient": TransientError,
    "unavailable": UnavailableError,
    "credentials": CredentialsError,
    "overflow": ContextOverflowError,
    "refused": RefusedError,
    "invalid": InvalidRequestError,
    "protocol": ProtocolError,
    "unclassified": UnclassifiedError,
}


@dataclass
class Try:
    tier: str
    error: TierError
    attempt: int = 1
    seconds: float = 0.5


@pytest.mark.parametrize(("name", "cls"), CLASSES.items())
def test_each_class_word_builds_its_error(name: str, cls: type[TierError]) -> None:
    """`tier_error` takes the word of each class and builds the error that carries it."""
    cause = OSError("gone")
    error = tier_error(name, "what happened", retry_after=2.0, status=500, code="oops", cause=cause)
    assert type(error) is cls
    assert error.error_class == name
    assert (str(error), error.message) == ("what happened", "what happened")
    assert (error.retry_after, error.status, error.code, error.__cause__) == (2.0, 500, "oops", cause)


def test_every_class_word_has_an_error() -> None:
    """No class is without its error."""
    assert set(CLASSES) == set(ErrorClass)


def test_an_unknown_class_word_fails_with_the_list() -> None:
    """A word that is no class fails when the error is built, and the message lists those that are."""
    with pytest.raises(ValueError, match="'flaky'") as caught:
        tier_error("flaky", "x")
    assert all(word in str(caught.value) for word in CLASSES)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InvalidRequestError("x"), ValueError),
        (ConfigError("x"), ValueError),
        (ToolDefinitionError("x"), ValueError),
        (PromptError("x"), ValueError),
        (PromptError("x"), TypeError),
        (AdapterError("x"), TypeError),
        (MissingDependencyError("f", "p", extra="e"), ImportError),
    ],
)
def test_errors_are_builtin_types_where_those_are_expected(error: Exception, builtin: type[Exception]) -> None:
    """All are of one tree, and also of the built-in type that a caller would catch."""
    assert isinstance(error, IsthmusError)
    assert isinstance(error, builtin)


@pytest.mark.parametrize("cls", CLASSES.values())
def test_errors_survive_pickling(cls: type[TierError]) -> None:
    """A tier error that crosses a process keeps its class and every field."""
    error = cls("m", status=429, code="c", retry_after=1.5, body="{}")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (str(again), again.__dict__) == ("m", error.__dict__)


def test_a_tier_error_as_json_values() -> None:
    """`to_dict` has class, message, status, code and retry_after, and nothing that could hold a secret."""
    error = CredentialsError("no", status=401, code="bad", body="Bearer abc")
    assert error.to_dict() == {
        "class": "credentials",
        "message": "no",
        "status": 401,
        "code": "bad",
        "retry_after": None,
    }
    assert "Bearer" not in repr(error)


def test_exhaustion_names_each_attempt() -> None:
    """The message names tier, try, class and text of every attempt; the records stand as given."""
    tries = (Try("a", TransientError("slow", retry_after=9.0)), Try("b", CredentialsError("no", retry_after=3.0)))
    error = ChainExhausted("main", tries)
    assert str(error) == "chain 'main': no tier answered (a try 1: transient: slow; b try 1: credentials: no)"
    assert (error.chain_id, error.failures, error.retry_after) == ("main", tries, 3.0)
    assert "none could be tried" in str(ChainExhausted("main"))


def test_exhaustion_is_a_classified_failure() -> None:
    """To whatever calls it, an exhausted chain is unavailable; if overflows alone stopped it, an overflow."""
    mixed = ChainExhausted("c", [Try("a", ContextOverflowError("x")), Try("b", TransientError("y"))])
    full = ChainExhausted("c", [Try("a", ContextOverflowError("x"))])
    assert (mixed.error_class, full.error_class) == ("unavailable", "overflow")
    assert classify(mixed) is mixed
    assert ChainExhausted("c").error_class == "unavailable"


def test_exhaustion_survives_pickling() -> None:
    """A pickled exhaustion keeps its message and its attempts."""
    error = ChainExhausted("c", [Try("a", ContextOverflowError("x"))])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.chain_id, again.error_class) == (str(error), "c", "overflow")
    assert [f.tier for f in again.failures] == ["a"]


def test_a_setting_error_says_where() -> None:
    """A configuration error names its place and key before its message."""
    error = ConfigError("use a number", where="config.toml", key="llm.max_tokens")
    assert str(error) == "config.toml: llm.max_tokens: use a number"
    assert (error.where, error.key) == ("config.toml", "llm.max_tokens")
    assert str(ConfigError("bare")) == "bare"


def test_a_missing_package_says_how_to_install_it() -> None:
    """The message names the feature, the package and the command with the extra."""
    error = MissingDependencyError("the local model", "xllamacpp", extra="local")
    assert "the local model" in str(error)
    assert "pip install 'isthmus[local]'" in str(error)


def test_causes_are_followed_in_order_and_bounded() -> None:
    """The chain of causes goes from the error down, stops at the bound even in a ring, and respects `from None`."""
    root = KeyError("root")
    middle = ValueError("middle")
    middle.__cause__ = root
    top = RuntimeError("top")
    top.__cause__ = middle
    assert list(chain_of_causes(top)) == [top, middle, root]
    root.__cause__ = top
    assert len(list(chain_of_causes(top))) == 8
    hidden = RuntimeError("hidden")
    hidden.__context__ = root
    hidden.__suppress_context__ = True
    assert list(chain_of_causes(hidden)) == [hidden]


def test_cut_reasons_are_the_documented_words() -> None:
    """Why a turn can be cut, word for word."""
    assert {str(reason) for reason in CutReason} == {
        "stream-error",
        "exhausted",
        "deadline",
        "aborted",
        "budget-steps",
        "budget-tokens",
        "budget-cost",
        "budget-time",
        "budget-calls",
        "window",
        "length",
        "refused",
        "approval",
    }


def _with_partial() -> TierError:
    error = TransientError("cut", retry_after=3.0)
    error.partial = StepResult(events=(Text("half"),), finish="error-post", error=error)
    return error


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        _with_partial(),
        ChainExhausted("c", [Attempt(tier="a", attempt=1, seconds=0.5, error=_with_partial())]),
        ConfigError("bad", where="here", key="k"),
        MissingDependencyError("this", "that", extra="local"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_survives_copies(error: Any, again: Any) -> None:
    """Pickled or copied, an error says the same, even one whose partial reply holds the error itself."""
    copied = again(error)
    assert (type(copied), str(copied), set(vars(copied))) == (type(error), str(error), set(vars(error)))
    if isinstance(error, TransientError):
        assert (copied.partial.text, copied.retry_after) == ("half", 3.0)


@pytest.mark.parametrize("hint", ["3", float("nan"), float("inf"), -1, object()])
def test_an_exhausted_chain_heeds_only_hints_that_can_be(hint: Any) -> None:
    """F09: a `retry_after` that is no finite number of seconds is none."""
    wrong, right = TransientError("a", retry_after=hint), TransientError("b", retry_after=2.0)
    attempts = [Attempt(tier="a", attempt=1, seconds=0.0, error=error) for error in (wrong, right)]
    assert ChainExhausted("c", attempts).retry_after == 2.0


def test_what_goes_wrong_with_a_model_has_one_root() -> None:
    """A failed call and a model that misbehaves are both `ModelsException`; settings and tools are not."""
    for cls in (*CLASSES.values(), ChainExhausted, ModelBehaviorError):
        assert issubclass(cls, ModelsException)
    for other in (ConfigError, AdapterError, ToolDefinitionError, MissingDependencyError):
        assert not issubclass(other, ModelsException)
        assert issubclass(other, IsthmusError)


def test_an_error_carries_how_far_the_run_had_come() -> None:
    """`run_data` is None until a run sets it, each error's own, and survives a copy."""
    error, other = ModelBehaviorError("called a withdrawn tool"), TransientError("x")
    assert (error.message, error.run_data, other.run_data) == ("called a withdrawn tool", None, None)
    assert ModelsException("x", run_data=RunErrorDetails("r")).run_data == RunErrorDetails("r")
    error.run_data = RunErrorDetails(raw_response="r")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(again), again.run_data) == ("called a withdrawn tool", RunErrorDetails("r"))
    assert other.run_data is None
