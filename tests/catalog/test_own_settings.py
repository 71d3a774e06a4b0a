"""pyiceberg's configuration file is parsed again only if it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import strictyaml
from pyiceberg.utils.config import Config

from reconciler.catalog import border, own_settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return tmp_path / ".pyiceberg.yaml"


def test_a_file_is_parsed_once_until_it_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed, load = list[str](), strictyaml.load
    monkeypatch.setattr(strictyaml, "load", lambda text: parsed.append(text) or load(text))
    home.write_text("max-workers: 3\n")
    assert [Config().get_int("max-workers") for _ in range(5)] == [3] * 5
    assert len(parsed) == 1
    home.write_text("max-workers: 4\n")
    os.utime(home, ns=(1, 1))
    assert Config().get_int("max-workers") == 4
    assert len(parsed) == 2
    home.unlink()
    assert Config().get_int("max-workers") is None


def test_the_environment_is_looked_at_each_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("catalog:\n  a:\n    uri: x\n")
    monkeypatch.setenv("PYICEBERG_CATALOG__A__URI", "y")
    assert Config().get_catalog_config("a") == {"uri": "y"}
    monkeypatch.delenv("PYICEBERG_CATALOG__A__URI")
    assert Config().get_catalog_config("a") == {"uri": "x"}


def test_the_border_puts_it_in_place() -> None:
    assert border.own_settings is own_settings
    assert Config._from_configuration_files is own_settings._settings
