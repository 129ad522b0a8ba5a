"""service/settings: the environment is read, and what it holds by mistake is refused."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from demur.service.format.validation import refused_value
from demur.service.settings import FOREIGN, PREFIX, Settings, UnknownSettingError, load_settings
from tests.support.bundles import Synthetic
from tests.support.server import refusal, running

VALUES: dict[str, tuple[str, Any]] = {
    "bundle": ("/models/digits:/models/faces", ("/models/digits", "/models/faces")),
    "cache_dir": ("/cache", Path("/cache")),
    "models": ("/models", Path("/models")),
    "default_model": ("digits", "digits"),
    "model_name": ("numbers", "numbers"),
    "watch_seconds": ("2.5", 2.5),
    "workers": ("2", 2),
    "grpc_port": ("9001", 9001),
    "false_reject_rate": ("0.01", 0.01),
    "requested_rates": ("0.01, 0.2", (0.01, 0.2)),
    "reject_by_class": ("true", True),
    "sets_by_class": ("true", True),
    "accepted_accuracy": ("0.99", 0.99),
    "max_batch_size": ("16", 16),
    "max_queue_rows": ("100", 100),
    "request_timeout_seconds": ("5", 5.0),
    "compute_timeout_seconds": ("90", 90.0),
    "max_pending_bytes": ("2MiB", 2 * 2**20),
    "drain_seconds": ("5", 5.0),
    "api_keys_file": ("/run/keys", Path("/run/keys")),
    "metrics_public": ("false", False),
    "playground": ("false", False),
    "cors_origins": ("https://a.example, https://b.example", ("https://a.example", "https://b.example")),
    "trusted_proxies": ("10.0.0.1, 10.1.0.0/16, fd00::1", ("10.0.0.1", "10.1.0.0/16", "fd00::1")),
    "trusted_keys": ("/run/trusted", Path("/run/trusted")),
    "ready_requires": ("all", "all"),
    "trial_bytes": ("1000000", 1_000_000),
    "shadow": ("digits/10@0.1", "digits/10@0.1"),
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("9000", 9000),
    "threads": ("3", 3),
    "traces": ("true", True),
    "access_log": ("false", False),
    "audit_file": ("/var/log/audit.jsonl", Path("/var/log/audit.jsonl")),
    "audit_bytes": ("1000", 1000),
    "audit_inputs": ("true", True),
    "feedback_secret_file": ("/etc/demur/feedback-secret", Path("/etc/demur/feedback-secret")),
    "feedback_max_age_seconds": ("86400", 86400.0),
    "feedback_keys_file": ("/etc/demur/feedback-keys", Path("/etc/demur/feedback-keys")),
    "client_timeout_seconds": ("2", 2.0),
    "max_body_bytes": ("1000", 1000),
    "max_rows": ("7", 7),
    "max_pixels": ("12345", 12345),
    "interval_level": ("0.5", 0.5),
    "shutdown_seconds": ("5", 5),
    "log_format": ("json", "json"),
    "log_level": ("warning", "warning"),
}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


def test_every_setting_is_described_and_has_a_default() -> None:
    for name, setting in Settings.model_fields.items():
        assert setting.description, name
        assert setting.description.endswith("."), name
        assert not setting.is_required(), name
    assert set(VALUES) == set(Settings.model_fields), "a new setting needs a line in this test"
    assert load_settings() == Settings()


@pytest.mark.parametrize("spell", [str.upper, str.lower])
def test_every_setting_is_read_from_the_environment(spell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (text, expected) in VALUES.items():
        assert getattr(Settings(), name) != expected
        with monkeypatch.context() as alone:
            alone.setenv(spell(PREFIX + name), text)
            if name == "metrics_public":
                alone.setenv(f"{PREFIX}API_KEYS_FILE", "keys")  # without keys it would be refused
            assert getattr(load_settings(), name) == expected


def test_what_is_given_wins_and_none_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMUR_PORT", "9000")
    assert load_settings(port=0).port == 0
    assert load_settings(port=None, host=None).port == 9000


@pytest.mark.parametrize("name", ["DEMUR_PROT", "DEMUR_", "demur_colour", "DEMUR_MODEL_FIELDS"])
def test_an_unknown_variable_with_the_prefix_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(UnknownSettingError) as caught:
        load_settings()
    message = str(caught.value)
    assert message.startswith(f"{name}: unknown setting")
    assert ("did you mean 'DEMUR_PORT'?" in message) == (name == "DEMUR_PROT")
    assert "docs/settings.md" in message


def test_variables_of_the_benchmarks_and_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*FOREIGN, "DEMURX", "MY_DEMUR_PORT"):
        monkeypatch.setenv(name, "/somewhere")
    assert {"DEMUR_DATA_DIR", "DEMUR_DATA_CACHE"} <= FOREIGN
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "abc"),
        ("port", "-1"),
        ("port", "65536"),
        ("port", "80.5"),
        ("threads", "0"),
        ("max_body_bytes", "-5"),
        ("max_rows", "0"),
        ("max_pixels", "many"),
        ("interval_level", "0"),
        ("false_reject_rate", "1"),
        ("requested_rates", "0.5"),
        ("interval_level", "1"),
        ("interval_level", "nan"),
        ("shutdown_seconds", "0"),
        ("watch_seconds", "0"),
        ("max_queue_rows", "0"),
        ("request_timeout_seconds", "inf"),
        ("metrics_public", "perhaps"),
        ("log_level", "loud"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + name.upper(), text)
    with pytest.raises(ValidationError) as caught:
        load_settings()
    found, problem = refused_value(caught.value)
    assert found == name
    assert text in problem


def test_metrics_that_need_a_key_need_keys() -> None:
    with pytest.raises(ValidationError, match="metrics_public: found false without api_keys_file"):
        Settings(metrics_public=False)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1
    with pytest.raises(ValidationError):
        Settings(colour="red")  # type: ignore[call-arg]


def test_an_empty_name_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODELS", "DEFAULT_MODEL", "MODEL_NAME", "BUNDLE", "CORS_ORIGINS"):
        monkeypatch.setenv(PREFIX + name, "")
    assert load_settings() == Settings()


@pytest.mark.parametrize("name", ["API_KEYS_FILE", "TRUSTED_KEYS"])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_value_switches_no_protection_off(name: str, empty: str) -> None:
    message = refusal("--port", "0", **{PREFIX + name: empty})
    assert message.startswith(f"error: {name.lower()} ({PREFIX}{name}): expected the path of a file; leave")
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cors_origins": "https://a.example/"}, "cors_origins: found 'https://a.example/', expected SCHEME"),
        (
            {"trusted_proxies": "proxy.example"},
            "trusted_proxies: 'proxy.example' does not appear to be an IPv4 or IPv6",
        ),
        ({"trusted_proxies": "10.0.0.1/16"}, "has host bits set"),
        ({"requested_rates": "0.2,0.1"}, "found '0.2,0.1', expected two rates between 0 and 1"),
        ({"cors_origins": "a.example"}, "cors_origins: found 'a.example'"),
        ({"model_name": "a", "bundle": ("x", "y")}, "model_name: found 2 bundles, expected one bundle"),
        ({"model_name": "m", "models": "x"}, "model_name: found a folder of bundles, expected one bundle"),
        ({"model_name": "a/b"}, "found 'a/b', expected no '/'"),
        ({"shadow": "digits/10"}, "found 'digits/10', expected NAME/VERSION@SHARE"),
        ({"shadow": "digits@0.1"}, "expected NAME/VERSION@SHARE"),
        ({"shadow": "../10@0.1"}, "expected NAME/VERSION@SHARE"),
        ({"shadow": "digits/10@1.5"}, "with a share above 0 and at most 1"),
    ],
)
def test_what_could_never_have_an_effect_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(**given)
    assert message in str(caught.value)
    Settings(cors_origins=("*", "https://a.example", "http://localhost:3000"))


def test_an_error_shows_no_other_setting() -> None:
    """As a file that holds keys."""
    with pytest.raises(ValidationError) as refused:
        Settings(port="many", api_keys_file=Path("/run/secret"), requested_rates=(0.2, 0.1))  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)
    with pytest.raises(ValidationError) as refused:
        Settings(api_keys_file=Path("/run/secret"), requested_rates=(0.2, 0.1))
    assert "secret" not in str(refused.value)


def test_what_is_not_the_default_is_told() -> None:
    assert Settings().described() == "all by default"
    told = Settings(port=9000, models=Path("/models"), requested_rates=(0.01, 0.2), cors_origins=("*",)).described()
    assert set(told.split(" ")) == {
        "DEMUR_PORT=9000",
        "DEMUR_MODELS=/models",
        "DEMUR_REQUESTED_RATES=0.01,0.2",
        "DEMUR_CORS_ORIGINS=*",
    }
    assert "settings:" not in refusal("--port", "0", "--models", "/nowhere")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_log_begins_with_the_settings(classification: Synthetic, workers: str) -> None:
    with running(classification.path, DEMUR_WORKERS=workers, DEMUR_MAX_ROWS="7") as server:
        told = [line for line in server.lines if "settings: " in line]
    assert len(told) == 1
    assert "DEMUR_MAX_ROWS=7" in told[0]
