"""Public names of a package that are imported when they are first used, listed once, in its stub."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def attach(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; type checkers read the same names from the stub.

    Args:
        package: `__name__` of the package.
        file: `__file__` of the package. The stub `__init__.pyi` beside it has a line for each public name.
    """
    lines = Path(file).with_suffix(".pyi").read_text("utf-8").splitlines()
    modules = {name: module for _, module, _, name, *_ in map(str.split, lines)}  # from MODULE import NAME as NAME

    def get(name: str) -> object:
        if name not in modules:
            from .checks import perhaps

            known = f"it has {', '.join(sorted(modules))}{perhaps(name, modules)}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}; {known}")
        if modules[name] == ".":
            return import_module(f".{name}", package)
        value = getattr(import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*modules, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})

    return get, names
