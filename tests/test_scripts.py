"""Scripts that no test runs: what they import is there."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    path.relative_to(ROOT)
    for place in ("benchmarks", "deploy", "fuzz")
    for path in (ROOT / place).rglob("*.py")
)


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_what_scripts_import_is_there(script: Path) -> None:
    for node in ast.walk(ast.parse((ROOT / script).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("captioner"):
            module = importlib.import_module(str(node.module))
            for name in (alias.name for alias in node.names):
                assert hasattr(module, name) or find_spec(f"{node.module}.{name}"), name
