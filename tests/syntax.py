"""Syntax trees of all modules of the package, parsed once for all tests that read it."""

import ast
import functools
from pathlib import Path

import tensormetrics

PACKAGE = Path(tensormetrics.__file__).parent


@functools.cache
def trees() -> dict[Path, ast.Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in paths}
