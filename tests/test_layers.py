"""Imports run one way: the ground floor <- assignment <- a domain <- __main__, no domain knows another, the rooms of a
domain stand on each other in one order, and no two files import each other."""

import ast
from pathlib import Path

import pytest

import tensormetrics

PACKAGE = Path(tensormetrics.__file__).parent
DOMAINS = sorted(file.parent.name for file in PACKAGE.glob("[!_]*/__init__.py"))
COMMAND_LINE = "__main__.py", "_cli", "_demo.py", "_info.py", "_warm_up.py"
GROUND = (
    "_metric",
    "_sum_metric",
    "_tables",
    "_checks",
    "_columns",
    "_exact_sums",
    "_files",
    "_interruptible",
    "_kept",
    "_native",
    "_plots",
    "_ranks",
    "_splitmix",
    "_triton",
    "_uncertainty",
    "_version",
)
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
ROOMS = {  # of a domain, each on those before it
    "retrieval": (
        *("sums", "relevance", "sources", "rows", "search", "ranks", "scores", "clusters", "calculator", "runs"),
    ),
    "structured": ("tensors", "objects", "dsl", "suites"),
}
OPEN = "knn", "distance", "backends"  # of the search, for scores, clusters and the calculator
FLAT = "association", "posterior", "_cli"  # a file for each metric or command
MOST_FILES = 12
MOST_LINES = 60  # of a function, its docstring not counted; what the command line declares as options may be longer


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
    rooms = ROOMS.get(own, ())
    room, (used, *inside) = path.parts[1].removesuffix(".py"), module.split(".")[1:]
    if target != own or room not in rooms:
        return None
    if used not in rooms or rooms.index(used) > rooms.index(room):
        return f"{room} stands on {', '.join(rooms[: rooms.index(room)]) or 'nothing'}"
    if used == "search" and rooms.index(room) >= rooms.index("scores") and inside[0] not in OPEN:
        return f"of the search, {room} uses only {', '.join(OPEN)}"
    return None


def imported_files(path: Path) -> set[Path]:
    """The files of the package that a file imports, wherever in it."""
    found = set()
    for module in imported_modules((PACKAGE / path).read_text(), path.parts):
        whole = Path(*module.split("."))
        for target in (whole, whole.parent):  # a module, or a name of one
            files = {target.with_suffix(".py"), target / "__init__.py"} & set(FILES)
            if files:
                found |= files
                break
    return found


def circles(edges: dict[Path, set[Path]]) -> list[Path]:
    """Files that lie on a circle of imports, or between two."""
    left = dict(edges)
    while free := [file for file, targets in left.items() if not targets & left.keys()]:
        for file in free:
            del left[file]
    return sorted(left)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_run_one_way(path):
    modules = imported_modules((PACKAGE / path).read_text(), path.parts)
    assert {module: why for module in modules if (why := breach(path, module))} == {}


def test_no_circle_of_files():
    assert circles({path: imported_files(path) - {path} for path in FILES}) == []


def test_a_circle_is_seen():
    a, b, c = map(Path, "abc")
    assert circles({a: {b}, b: {c}, c: set()}) == [] and circles({a: {b}, b: {a}, c: {a}}) == [a, b, c]
    assert Path("retrieval/deterministic.py") in imported_files(Path("retrieval/search/distance.py"))


def test_rooms_are_small_and_say_what_happens_there():
    folders = {path.parent for path in FILES if path.parts[0] not in FLAT and len(path.parts) > 1}
    held = {folder: sum(path.parent == folder and path.name != "__init__.py" for path in FILES) for folder in folders}
    assert {folder: number for folder, number in held.items() if number > MOST_FILES} == {}
    assert [
        folder for folder in folders if not ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text()))
    ] == []


def lines_of_functions(source: str) -> list[tuple[str, int]]:
    """How many lines each function takes, those inside of it included, its docstring not."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            found.append((node.name, lines))
    return found


def test_functions_are_short():
    files = [path for path in FILES if path.parts[0] not in COMMAND_LINE]
    functions = ((path, *each) for path in files for each in lines_of_functions((PACKAGE / path).read_text()))
    assert [f"{path}: {name} has {lines}" for path, name, lines in functions if lines > MOST_LINES] == []


def test_lines_are_counted():
    source = 'def f(\n    a,\n):\n    """One.\n\n    Two."""\n    def g():\n        return a\n    return g\n'
    assert lines_of_functions(source) == [("f", 6), ("g", 2)]


@pytest.mark.parametrize(
    ("source", "parts", "allowed"),
    [
        ("from .._metric import Metric", ("retrieval", "knn.py"), True),
        ("from .. import _checks", ("retrieval", "knn.py"), True),
        ("from .knn import TorchKNN", ("retrieval", "centroid.py"), True),
        ("from ...assignment import linear_sum_assignment", ("retrieval", "clusters", "kmeans.py"), True),
        ("from ..search.knn import TorchKNN", ("retrieval", "scores", "centroid.py"), True),
        ("from ..search.filter import Filter", ("retrieval", "ranks", "counting.py"), True),
        ("from ..search.filter import Filter", ("retrieval", "scores", "centroid.py"), False),
        ("from ..ranks.ranks import rank_tiles", ("retrieval", "search", "knn.py"), False),
        ("from .search import knn", ("retrieval", "sums.py"), False),
        ("from ..suites.ranking import RankingScores", ("structured", "objects", "family.py"), False),
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
