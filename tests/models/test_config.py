"""The settings of one connection."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import pytest

from isthmus.errors import ConfigError
from isthmus.models import ConcurrentRequestLimiter, Config, ModelTracing

CANARY = "canary-4f1e-secret"
DEFAULTS = {
    "max_retries": 3,
    "timeout": 600.0,
    "organization": None,
    "base_url": None,
    "default_headers": None,
    "vertex_project_id": None,
    "vertex_location": None,
    "enforce_structured_output": False,
    "tracing": ModelTracing.DISABLED,
    "schema_validation_retries": 3,
    "rate_limiter": None,
}


def full() -> Config:
    """One with a secret wherever one may hide."""
    return Config(
        api_key=CANARY,
        model="m",
        organization="org-7",
        base_url=f"https://user:{CANARY}@host.example/v1?sig={CANARY}",
        default_headers={"X-Api-Key": CANARY, "x-team": "blue", "x-odd": f"Bearer {CANARY}", "x-copy": CANARY},
        rate_limiter=ConcurrentRequestLimiter(2),
    )


def test_the_fields_and_defaults() -> None:
    """Key and model are required; every other field has its default."""
    config = Config(api_key="k", model="m")
    assert {each.name: getattr(config, each.name) for each in fields(config)} == {
        "api_key": "k",
        "model": "m",
        **DEFAULTS,
    }
    for given in ({"api_key": "k"}, {"model": "m"}):
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            Config(**given)  # type: ignore[arg-type]


def test_it_is_frozen() -> None:
    """Neither a field nor a header can be changed; `replace` makes another; the caller's headers stay his."""
    headers = {"a": "b"}
    config = Config(api_key="k", model="m", default_headers=headers)
    with pytest.raises(FrozenInstanceError):
        config.model = "n"  # type: ignore[misc]
    for change in (lambda: config.default_headers.update(a="c"), lambda: config.default_headers.__setitem__("a", "c")):  # type: ignore[union-attr]
        with pytest.raises(TypeError, match=r"dataclasses\.replace"):
            change()
    headers["a"] = "z"
    assert replace(config, model="n").default_headers == {"a": "b"}
    assert replace(config, model="n") != config
    assert len({config, copy.copy(config), Config(api_key="k", model="m", default_headers={"a": "b"})}) == 1


def test_no_view_shows_a_secret() -> None:
    """F29: repr, str, format, vars and asdict show no key, no header that is or looks like one, no password."""
    config = full()
    shown = [repr(config), str(config), f"{config}", "%s" % config, repr(vars(config)), repr(asdict(config))]  # noqa: UP031
    shown += [repr(config.default_headers), repr([config]), str(config.to_trace_settings())]
    for text in shown:
        assert CANARY not in text
    assert "blue" in repr(config)
    assert config.api_key == CANARY


def test_vars_and_asdict_hand_the_key_out_as_it_is() -> None:
    """What asks for the fields themselves gets them, so that a client can send them."""
    assert vars(full())["api_key"] == CANARY
    assert asdict(full())["default_headers"]["X-Api-Key"] == CANARY


def test_it_is_never_pickled() -> None:
    """F29: a pickle would hold the key, or a config without one; copies are the object itself."""
    config = full()
    with pytest.raises(TypeError, match="make it anew where it is used"):
        pickle.dumps(config)
    assert copy.deepcopy(config) is copy.copy(config) is config


def test_a_traceback_through_it_shows_no_key() -> None:
    """F29: an error of another field names neither key nor header."""
    with pytest.raises(ConfigError) as caught:
        replace(full(), timeout=0)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_trace_settings_leave_out_key_organization_and_headers() -> None:
    """What a trace may show is plain JSON."""
    shown = full().to_trace_settings()
    assert json.loads(json.dumps(shown)) == shown
    assert set(shown) == {each.name for each in fields(Config)} - {
        *("api_key", "organization", "default_headers", "rate_limiter")
    }
    assert (shown["tracing"], shown["base_url"]) == ("DISABLED", "https://***@host.example/v1?sig=***")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"api_key": ""}, "api_key: is empty: give the key"),
    ({"api_key": None}, "api_key: must be text, not NoneType: give the key"),
    ({"api_key": f"{CANARY}\nx"}, "api_key: holds characters that no header can carry: check where"),
    ({"model": " "}, "model: must be text that is not empty, not ' ': give the model's id"),
    ({"max_retries": -1}, "max_retries: must be a whole number from 0, not -1"),
    ({"max_retries": True}, "max_retries: must be a whole number from 0, not True"),
    ({"schema_validation_retries": 1.5}, "schema_validation_retries: must be a whole number from 0, not 1.5"),
    ({"timeout": 0}, "timeout: must be a number of seconds above 0, not 0"),
    ({"timeout": float("nan")}, "timeout: must be a number of seconds above 0, not nan"),
    ({"timeout": None}, "timeout: must be a number of seconds above 0, not None"),
    ({"organization": 7}, "organization: must be text that is not empty, not 7: leave it out"),
    (
        {"base_url": f"u:{CANARY}@host/v1"},
        "base_url: must be a URL with its scheme, not 'host/v1': write https://host/v1",
    ),
    ({"default_headers": [("a", "b")]}, "default_headers: must be names and values, not list: give a dict"),
    ({"default_headers": {"a": 1}}, "default_headers: 'a': name and value must be text, not int"),
    ({"default_headers": {"a": f"{CANARY}\r\nb: c"}}, "default_headers: 'a': a header must be one line"),
    ({"enforce_structured_output": "yes"}, "enforce_structured_output: must be True or False, not 'yes'"),
    ({"tracing": True}, "tracing: must be one of ModelTracing.DISABLED, ModelTracing.ENABLED"),
    ({"rate_limiter": object()}, "rate_limiter: object has no __aenter__: give a RateLimiter"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=lambda value: value[:30] if isinstance(value, str) else None)
def test_a_wrong_value_names_field_value_and_remedy(given: dict[str, Any], said: str) -> None:
    """Each field refuses what cannot be, and shows no secret while it does."""
    with pytest.raises(ConfigError) as caught:
        Config(**{"api_key": "k", "model": "m", **given})
    assert f"Config: {said}" in str(caught.value)
    assert CANARY not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_an_unknown_field_is_named() -> None:
    """Model options are no fields: they go with each call."""
    with pytest.raises(TypeError, match="temperature"):
        Config(api_key="k", model="m", temperature=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name",
    ["model", "max_retries", "timeout", "organization", "tracing", "enforce_structured_output", "vertex_location"],
)
def test_the_key_in_the_wrong_place_is_not_shown(name: str) -> None:
    """F29: the error of a field that holds the key, by mistake, names the field and hides the key."""
    given: dict[str, Any] = {"api_key": CANARY, "model": "m", name: [CANARY]}
    with pytest.raises(ConfigError, match=name) as caught:
        Config(**given)
    assert CANARY not in str(caught.value)


def test_a_config_that_is_refused_hides_its_key_in_the_frames() -> None:
    """F29: a traceback with locals shows the Config under construction without its key."""
    with pytest.raises(ConfigError) as caught:
        Config(api_key=CANARY, model="")
    frames = traceback.StackSummary.extract(traceback.walk_tb(caught.tb), capture_locals=True)
    shown = [(frame.locals or {})["self"] for frame in frames if "self" in (frame.locals or {})]
    assert shown
    assert CANARY not in str(shown)
