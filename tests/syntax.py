"""Syntax trees of all modules of the package, parsed once for all tests that read it."""

import ast
import functools
from pathlib import Path

import tensormetrics

PACKAGE = Path(tensormetrics.__file__).parent


parse = functools.cache(ast.parse)  # of a text; nobody changes the tree


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path.relative_to(PACKAGE): parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
