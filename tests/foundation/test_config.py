"""Configuration is read when it is used, `.env` stays below the environment, secrets stay out of text."""

from pathlib import Path

import pytest

from control_tower import config
from control_tower.errors import ValidationError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder of its own."""
    for name in config.OPTIONS:
        monkeypatch.delenv(f"CONTROL_TOWER_{name.upper()}", raising=False)
    monkeypatch.setenv("CONTROL_TOWER_CONFIG_DIR", str(tmp_path))
    return tmp_path


def test_environment_over_file_over_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.get("log_dir") is None
    assert config.get("log_dir", "logs") == "logs"
    (folder / "control-tower.toml").write_text('log_dir = "from-file"\nmax_samples = 3\n')
    assert (config.get("log_dir", "logs"), config.get("max_samples")) == ("from-file", "3")
    monkeypatch.setenv("CONTROL_TOWER_LOG_DIR", "from-environment")
    assert config.get("log_dir", "logs") == "from-environment"
    monkeypatch.setenv("CONTROL_TOWER_LOG_DIR", "")
    assert config.get("log_dir", "logs") == "from-file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('log_dri = "x"', "no option 'log_dri'; did you mean 'log_dir'"),
        ("log_dir = [1]", "log_dir must be text or a number"),
        ("log_dir =", "cannot be read"),
    ],
)
def test_a_faulty_file_is_named_with_its_fault(folder: Path, text: str, message: str) -> None:
    (folder / "control-tower.toml").write_text(text)
    with pytest.raises(ValidationError, match=message) as caught:
        config.get("log_dir")
    assert "control-tower.toml" in str(caught.value)


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
def test_counts_are_whole_numbers(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CONTROL_TOWER_MAX_SAMPLES", value)
    with pytest.raises(ValidationError, match=f"CONTROL_TOWER_MAX_SAMPLES.* is '{value}', not a whole"):
        config.get("max_samples")


def test_folders_can_be_moved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.config_dir() == folder
    (folder / "control-tower.toml").write_text(f'cache_dir = "{folder}/cache"\n')
    assert config.cache_dir() == folder / "cache"
    monkeypatch.setenv("CONTROL_TOWER_CACHE_DIR", "~/cache")
    assert config.cache_dir() == Path.home() / "cache"
    monkeypatch.delenv("CONTROL_TOWER_CACHE_DIR")
    (folder / "control-tower.toml").unlink()
    assert config.cache_dir().name == "control-tower"


def test_the_nearest_dotenv_is_read_below_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = folder / "project" / "deeper"
    inner.mkdir(parents=True)
    (folder / ".env").write_text("CT_TEST_FAR=far\n")
    (folder / "project" / ".env").write_text(
        "CT_TEST_NEAR=near\nCT_TEST_SET=dotenv\n"
        "CONTROL_TOWER_API_BASE_URL=http://elsewhere\nCONTROL_TOWER_API_TOKEN=stolen\n"
    )
    monkeypatch.chdir(inner)
    monkeypatch.setenv("CT_TEST_SET", "environment")
    environment = {"CT_TEST_SET": "environment"}
    monkeypatch.setattr(config.os, "environ", environment)
    assert config.load_dotenv() == folder / "project" / ".env"
    assert environment == {"CT_TEST_SET": "environment", "CT_TEST_NEAR": "near"}


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "sk-1234567890")
    monkeypatch.setenv("ACME_API_KEY_LONGER", "sk-1234567890-and-more")
    monkeypatch.setenv("ACME_REGION", "us-east-1-somewhere")
    monkeypatch.setenv("SHORT_TOKEN", "true")
    text = "true: sk-1234567890, sk-1234567890-and-more at https://me:pass@host/x in us-east-1-somewhere"
    assert config.redact(text) == "true: ***, *** at https://me:***@host/x in us-east-1-somewhere"
