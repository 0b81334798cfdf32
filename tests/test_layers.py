"""Imports run one way: the ground floor <- assignment <- a domain <- __main__, and no domain knows another."""

import ast
from pathlib import Path

import pytest

import tensormetrics

PACKAGE = Path(tensormetrics.__file__).parent
DOMAINS = sorted(file.parent.name for file in PACKAGE.glob("[!_]*/__init__.py"))
COMMAND_LINE = "__main__.py", "_cli", "_demo.py"
GROUND = "_metric", "_checks", "_files", "_native", "_plots", "_triton", "_version"
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def imported_modules(source: str, parts: tuple[str, ...]) -> set[str]:
    """The dotted names, below tensormetrics, that a file at `parts` imports; "" is the package root."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ["tensormetrics", *parts[:-1]][: len(parts) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.partition(".")[2] for name in names if name.partition(".")[0] == "tensormetrics"}
    return found


def breach(path: Path, module: str) -> str | None:
    """Why the file at `path` must not import `module`, or None."""
    own, target = path.parts[0], module.partition(".")[0]
    if own in (*COMMAND_LINE, "__init__.py") or target in GROUND:
        return None
    if target not in DOMAINS:
        return f"only {', '.join(GROUND)} and domains may be imported"
    if own.removesuffix(".py") in GROUND:
        return "the ground floor imports no domain"
    if target not in (own, "assignment"):
        return "a domain imports only itself and assignment"
    return None


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_run_one_way(path):
    modules = imported_modules((PACKAGE / path).read_text(), path.parts)
    assert {module: why for module in modules if (why := breach(path, module))} == {}


@pytest.mark.parametrize(
    ("source", "parts", "allowed"),
    [
        ("from .._metric import Metric", ("retrieval", "knn.py"), True),
        ("from .. import _checks", ("retrieval", "knn.py"), True),
        ("from .knn import TorchKNN", ("retrieval", "centroid.py"), True),
        ("from ..assignment import linear_sum_assignment", ("retrieval", "clusters.py"), True),
        ("from ..retrieval import TorchKNN", ("posterior", "module.py"), False),
        ("import tensormetrics.posterior", ("retrieval", "knn.py"), False),
        ("from ..retrieval import TorchKNN", ("assignment", "solver.py"), False),
        ("import tensormetrics", ("retrieval", "knn.py"), False),
        ("from .._plots import broken", ("posterior", "plots.py"), True),
        ("from .assignment import linear_sum_assignment", ("_metric.py",), False),
        ("from .posterior import Study", ("_plots.py",), False),
        ("from .retrieval import TorchKNN", ("__main__.py",), True),
    ],
)
def test_the_rule_itself(source, parts, allowed):
    (module,) = imported_modules(source, parts)
    assert (breach(Path(*parts), module) is None) == allowed
