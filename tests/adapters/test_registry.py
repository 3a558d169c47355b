from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.adapters import registry
from isthmus.adapters.registry import (
    available_providers,
    import_plugins,
    load_adapter,
    provider_of,
    provider_sources,
    register_adapter,
)
from isthmus.errors import ConfigError, MissingDependencyError


class Corp:
    """An adapter that remembers what its constructor was given."""

    def __init__(
        self, *, model: str = "", base_url: str | None = None, max_tokens: int = 8192, tenant_id: str = ""
    ) -> None:
        self.given = {"model": model, "base_url": base_url, "max_tokens": max_tokens, "tenant_id": tenant_id}

    def generate(self, ctx: object) -> dict[str, object]:
        return {"finish": "stop"}


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names registered in one test are gone in the next."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_failed_plugins", {})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with a distribution that offers adapters by entry points."""
    (tmp_path / "corpgate.py").write_text(
        "class Gate:\n"
        "    class Inner:\n"
        "        def generate(self, ctx): ...\n"
        "    def __init__(self, *, model=''):\n"
        "        self.model = model\n"
        "    def generate(self, ctx): ...\n"
        "number = 3\n"
    )
    info = tmp_path / "corpgate-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: corpgate\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[isthmus.adapters]\ngate = corpgate:Gate\nbroken = corpgate:Nothing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("corpgate", None)


def test_settings_reach_parameters_of_the_same_name() -> None:
    """A registered class gets each setting that it declares, custom ones too, and none that it does not."""
    register_adapter("corp", Corp)
    made = load_adapter("corp", model="m", base_url="http://g", tenant_id="acme", api_key="k", effort="low", system="s")
    assert made.given == {"model": "m", "base_url": "http://g", "max_tokens": 8192, "tenant_id": "acme"}


def test_provider_is_never_forwarded_and_system_only_if_declared() -> None:
    """A factory that declares `system` gets it; one that declares `provider` does not get that."""
    seen: dict[str, object] = {}

    def factory(*, model: str = "", system: str = "", provider: str = "unset") -> Corp:
        seen.update(model=model, system=system, provider=provider)
        return Corp()

    register_adapter("f", factory)
    load_adapter("f", model="m", system="Be brief.")
    assert seen == {"model": "m", "system": "Be brief.", "provider": "unset"}


def test_a_partial_shows_its_parameters() -> None:
    """A functools.partial of a class is a factory like the class."""
    register_adapter("p", functools.partial(Corp, tenant_id="fixed"))
    assert load_adapter("p", model="m").given["tenant_id"] == "fixed"
    assert load_adapter("p", model="m", tenant_id="other").given["tenant_id"] == "other"


def test_a_factory_of_kwargs_gets_nothing_and_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is forwarded to `**kwargs`, and the warning says what to declare."""
    seen: list[dict[str, object]] = []

    def factory(**kwargs: object) -> Corp:
        seen.append(kwargs)
        return Corp()

    register_adapter("kw", factory)
    with caplog.at_level(logging.WARNING, "isthmus.adapters"):
        load_adapter("kw", model="m")
    assert seen == [{}]
    assert "**kwargs" in caplog.text
    assert "declare each setting" in caplog.text


def test_a_signature_that_cannot_be_read_forwards_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A factory without a readable signature is called bare, with a warning."""

    class Opaque:
        __signature__ = "none"

        def __call__(self) -> Corp:
            return Corp()

    register_adapter("opaque", Opaque())
    with caplog.at_level(logging.WARNING, "isthmus.adapters"):
        assert load_adapter("opaque", model="m").given["model"] == ""
    assert "cannot be read" in caplog.text


def test_a_setting_that_nothing_takes_names_the_nearest() -> None:
    """A misspelt setting is an error, not silence."""
    register_adapter("corp", Corp)
    with pytest.raises(ConfigError, match="did you mean 'tenant_id'"):
        load_adapter("corp", tenantid="acme")


@pytest.mark.parametrize("falsy", [0, None, "0", ""])
def test_a_falsy_ceiling_is_left_to_the_adapter(falsy: object) -> None:
    """`max_tokens` of 0 or nothing means the adapter's own default."""
    register_adapter("corp", Corp)
    if falsy == "":
        with pytest.raises(ConfigError, match="whole number"):
            load_adapter("corp", max_tokens=falsy)
    else:
        assert load_adapter("corp", max_tokens=falsy).given["max_tokens"] == 8192


@pytest.mark.parametrize(("wanted", "seen"), [(64000, 4096), (100, 100), (0, 4096), (None, 4096)])
def test_the_ceiling_is_clamped_down_before_the_constructor_sees_it(wanted: int | None, seen: int) -> None:
    """`model_limits` lowers `max_tokens`, the default too, and never raises it."""
    register_adapter("corp", Corp)
    limits = {"claude": {"max_output_tokens": 4096}}
    made = load_adapter("corp", model="claude-x", max_tokens=wanted, model_limits=limits)
    assert made.given["max_tokens"] == seen


def test_limits_of_other_models_clamp_nothing() -> None:
    """An entry that is no part of the model's id does not count."""
    register_adapter("corp", Corp)
    limits = {"gpt": {"max_output_tokens": 10}}
    assert load_adapter("corp", model="claude-x", model_limits=limits).given["max_tokens"] == 8192


def test_texts_take_the_type_of_the_parameter() -> None:
    """What comes from a variable as text reaches a whole-number parameter as a number."""
    register_adapter("corp", Corp)
    assert load_adapter("corp", max_tokens="77").given["max_tokens"] == 77


def test_a_dotted_path_points_straight_at_a_class(site: Path) -> None:
    """`package.module:Class` needs no registration; nested names work."""
    assert load_adapter("corpgate:Gate", model="m").model == "m"
    assert type(load_adapter("corpgate:Gate.Inner")).__name__ == "Inner"


@pytest.mark.parametrize("path", ["no.such.module:X", "corpgate:Missing", "corpgate:number", "corpgate:"])
def test_a_wrong_dotted_path_is_named(site: Path, path: str) -> None:
    """An import or attribute that fails, or a target that is no factory, gives an error that names the path."""
    with pytest.raises(ConfigError) as caught:
        load_adapter(path)
    assert path in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_entry_points_come_before_registered_names_and_built_ins(site: Path) -> None:
    """Order: dotted path, entry point, registered, built in."""
    register_adapter("gate", Corp)
    assert type(load_adapter("gate")).__name__ == "Gate"
    register_adapter("scripted", Corp)
    assert isinstance(load_adapter("scripted"), Corp)


def test_a_broken_entry_point_is_named(site: Path) -> None:
    """The error names the entry point and what it points at."""
    with pytest.raises(ConfigError, match=r"corpgate:Nothing.*'broken'"):
        load_adapter("broken")


def test_an_unknown_provider_lists_all_and_how_to_add_one(site: Path) -> None:
    """The error lists the available names, the nearest one, and every way to extend."""
    register_adapter("corp", Corp)
    with pytest.raises(ConfigError) as caught:
        load_adapter("crop")
    message = str(caught.value)
    for part in ("did you mean 'corp'", "gate", "isthmus.adapters", "register_adapter", "package.module:Class"):
        assert part in message


def test_available_providers_are_a_sorted_union(site: Path) -> None:
    """Built-in, registered and installed names, sorted, each once."""
    register_adapter("zeta", Corp)
    found = available_providers()
    assert found == sorted(set(found))
    assert {"zeta", "gate", *registry.built_in()} <= set(found)
    assert list(provider_sources()) == found


def test_an_installed_name_wins_in_the_listing_too(site: Path) -> None:
    """The listing shows what would really be loaded."""
    register_adapter("gate", Corp)
    assert provider_sources()["gate"] == "entry point: corpgate:Gate"


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A built-in adapter whose package is absent says what to install."""
    row = registry.BuiltIn("no_such_sdk:Adapter", package="no_such_sdk", extra="sdk")
    monkeypatch.setattr(registry, "built_in", lambda: {"needy": row})
    with pytest.raises(MissingDependencyError, match=r"pip install 'isthmus\[sdk\]'"):
        load_adapter("needy")


@pytest.mark.parametrize(("name", "factory"), [("", Corp), ("a:b", Corp), ("x", 3)])
def test_registration_is_checked(name: str, factory: object) -> None:
    """An empty name, a name that reads as a path, and a factory that cannot be called are refused."""
    with pytest.raises(ConfigError):
        register_adapter(name, factory)  # type: ignore[arg-type]


def test_a_factory_that_makes_no_adapter_is_named() -> None:
    """What has neither stream nor generate is no adapter."""
    register_adapter("odd", lambda: 3)
    with pytest.raises(ConfigError, match="'odd' made a int"):
        load_adapter("odd")


def test_a_parameter_without_value_is_named() -> None:
    """A required parameter that no setting fills is an error before the constructor is called."""

    def factory(*, model: str, region: str) -> Corp:
        return Corp()

    register_adapter("needs", factory)
    with pytest.raises(ConfigError, match="needs a value for region"):
        load_adapter("needs", model="m")


def test_plugins_are_imported_once_and_a_failing_one_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A module that fails is reported with its cause, again in the error about its provider, and not tried again."""
    (tmp_path / "plug_good.py").write_text(
        "import sys\nfrom isthmus.adapters.registry import register_adapter\n"
        "sys.plug_count = getattr(sys, 'plug_count', 0) + 1\n"
        "class A:\n    def generate(self, ctx): ...\nregister_adapter('plugged', A)\n"
    )
    (tmp_path / "plug_bad.py").write_text("raise RuntimeError('licence is missing')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with caplog.at_level(logging.WARNING, "isthmus.adapters"):
        import_plugins(["plug_good", "plug_bad"])
        import_plugins(["plug_good", "plug_bad"])
    assert caplog.text.count("licence is missing") == 1
    assert load_adapter("plugged")
    assert sys.plug_count == 1  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="licence is missing"):
        load_adapter("nowhere")
    for name in ("plug_good", "plug_bad"):
        sys.modules.pop(name, None)


def test_what_led_to_a_failed_import_is_shown_without_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asks, by plugin or by dotted path, is told the whole chain of causes, and no key that stands in it."""
    (tmp_path / "plug_why.py").write_text(
        "try:\n    import plug_not_there\n"
        "except ImportError as error:\n    raise RuntimeError('no gateway for sk-canary-0123456789') from error\n"
    )
    (tmp_path / "plug_self.py").write_text("error = RuntimeError('round')\nraise error from error\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_plugins(["plug_why", "plug_self"])
    why = r"RuntimeError: no gateway for \*\*\*, because of ModuleNotFoundError: No module named 'plug_not_there'"
    for provider in ("nowhere", "plug_why:A"):
        with pytest.raises(ConfigError, match=why):
            load_adapter(provider)
    assert "plug_not_there" in caplog.text
    assert "sk-canary-0123456789" not in caplog.text


@pytest.mark.parametrize(("body", "found"), [({"anthropic_version": "v"}, True), ({}, True), ({"prompt": "x"}, False)])
def test_a_shared_path_is_told_apart_by_the_body(body: dict[str, str], found: bool) -> None:
    """Where others use the same path, a member of the body decides; without a body the path does."""
    assert (provider_of("/v1/publishers/p/models/m:rawPredict", body) is not None) is found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/chat/completions", True),
        ("/openai/deployments/x/chat/completions?api-version=1", True),
        ("/v1/messages", True),
        ("/v1/projects/p/locations/l/publishers/a/models/c:streamRawPredict", True),
        ("/v1/messages/count_tokens", False),
        ("/api/chat", False),
    ],
)
def test_recordings_are_recognised_by_path(path: str, found: bool) -> None:
    """The built-in table says whose requests end like that."""
    assert (provider_of(path, {}) is not None) is found


@pytest.mark.parametrize("action", ["invoke", "invoke-with-response-stream", "converse", "converse-stream"])
def test_a_star_in_a_path_stands_for_anything(action):
    """A row whose paths hold a model's id knows its requests by what stands around it, and no others."""
    assert provider_of(f"/model/us.amazon.m%3A0/{action}?x=1", {}) == "bedrock"
    assert provider_of(f"/chain/{action}", {}) != "bedrock"
