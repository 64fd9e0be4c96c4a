"""Fixtures of tests that train on coloured squares; areas import them in their conftest.py."""

from pathlib import Path

import pytest

from support import squares


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a data set of coloured squares."""
    folder = tmp_path_factory.mktemp("squares")
    squares.write(folder)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
