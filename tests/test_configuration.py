"""Paths in configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.configuration import below


def test_paths_are_relative_to_the_configuration_absolute_or_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    assert below(tmp_path, "photos") == tmp_path / "photos"
    assert below(tmp_path, str(tmp_path / "other")) == tmp_path / "other"
    assert below(tmp_path, "~/photos") == tmp_path / "home" / "photos"
    assert below(tmp_path, "a~b") == tmp_path / "a~b"
