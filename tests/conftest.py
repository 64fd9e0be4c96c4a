"""A small model that most tests share; tests/support/make_tiny_bundle.py made it."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.disks import mount  # noqa: F401

from captioner import Captioner

with suppress(ImportError):  # the wheel is tested without it
    from hypothesis import HealthCheck, settings

    # How long an example takes says more of the machine than of what is tested.
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's cache folder, for this process and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def user_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the models are that the user has taught or chosen; none at first."""
    folder = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("CAPTIONER_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny_bundle() -> Path:
    """A valid bundle of 64 pixels and 4 x 4 cells, which looks at what is bright. Not to be changed."""
    return Path(__file__).parent / "data" / "tiny-bundle"


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy of the tiny bundle, which may be changed."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "copy"))


@pytest.fixture(scope="session")
def letterboxed_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the tiny bundle, but photos keep their shape. Not to be changed."""
    letterboxed = pytest.importorskip("support.letterboxed", reason="PyTorch makes it")
    bundle: Path = letterboxed.make_bundle(tmp_path_factory.mktemp("letterboxed") / "bundle")
    return bundle


@pytest.fixture(scope="session")
def letterboxed_captioner(letterboxed_bundle: Path) -> Captioner:
    return Captioner.load(letterboxed_bundle, device="cpu", threads=1)


@pytest.fixture(scope="session")
def tiny_captioner(tiny_bundle: Path) -> Captioner:
    return Captioner.load(tiny_bundle, device="cpu", threads=1)
