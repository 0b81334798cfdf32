"""Imports follow an order: shared files <- `results` and `engine` of `uncertainty` <- the base of metrics <- the rest
of `uncertainty`, `assignment` <- a domain <- the command line. No domain imports another, the subpackages of a domain
have an order, and no two files import each other."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tensormetrics

PACKAGE = Path(tensormetrics.__file__).parent
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
DOMAINS = sorted(file.parent.name for file in PACKAGE.glob("[!_]*/__init__.py"))
COMMAND_LINE = "__main__", "_cli", "_demo", "_gpu_checks", "_gpu_report", "_gpu_trials", "_info", "_warm_up"
METRIC_BASES = "_metric", "_sum_metric"
GROUND = {path.stem for path in FILES if len(path.parts) == 1} - {"__init__", *COMMAND_LINE}
SHARED_DOMAINS = "assignment", "uncertainty"  # every domain may import them
SUBPACKAGES = {  # domain -> subpackages in the order of imports: each may import the ones before it
    "association": ("sets", "language_models", "embeddings", "resampling", "metrics", "queries", "debias"),
    "posterior": ("sampling", "metrics", "summaries", "comparison", "plots", "study"),
    "retrieval": (
        *("deterministic", "relevance", "sources", "inputs", "search", "ranking", "scores", "clusters", "calculator"),
        "runs",
    ),
    "structured": ("tensors", "fields", "objects", "dsl", "suites"),
    "uncertainty": (
        "results",
        "engine",
        "statistics",
        "metrics",
        "item_scores",
        "score_files",
        "score_sources",
        "sequences",
        "scores",
        "metric_pairs",
        "paired_scores",
        "paired_sequences",
        "model_tables",
        "battles",
        "comparison",
        "planning",
    ),
}
PUBLIC_SEARCH = (
    "knn",
    "distance",
    "backends",
)  # modules of retrieval/search that scores, clusters and the calculator may import
MAX_FILES = 12  # in a folder whose files import each other
MAX_LINES = 60  # of a function without its docstring; functions of the command line that declare options may be longer


def imported_modules(source: str, parts: tuple[str, ...], type_checking: bool = True) -> set[str]:
    """Return the dotted names below tensormetrics that a file imports; "" is the package root.

    `type_checking=False` leaves out blocks under `if TYPE_CHECKING`, which do not run.
    """
    modules = set()
    tree = ast.parse(source)
    skipped = set()
    if not type_checking:
        guards = (
            node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        skipped = {child for guard in guards for statement in guard.body for child in ast.walk(statement)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ["tensormetrics", *parts[:-1]][: len(parts) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        modules |= {name.partition(".")[2] for name in names if name.partition(".")[0] == "tensormetrics"}
    return modules


def reason_against_import(path: Path, module: str) -> str | None:
    """Return why the file at `path` must not import `module`, or None if it may."""
    importer, (target, *subpath) = path.parts[0].removesuffix(".py"), module.split(".")
    if importer in (*COMMAND_LINE, "__init__"):
        return None
    is_below = path.parts[0] == "uncertainty" and path.parts[1] in SUBPACKAGES["uncertainty"][:2]
    if target in GROUND:
        return "results and engine are below the bases of metrics" if is_below and target in METRIC_BASES else None
    if target not in DOMAINS:
        return "only files of the ground and domains may be imported"
    if importer in GROUND:
        is_below = target == "uncertainty" and subpath[0] in SUBPACKAGES["uncertainty"][:2]
        return None if is_below else "the ground imports results and engine of uncertainty only"
    if target not in (importer, *SHARED_DOMAINS) or (importer in SHARED_DOMAINS and target != importer):
        return f"a domain imports only itself, {' and '.join(SHARED_DOMAINS)}"
    order = SUBPACKAGES.get(importer, ())
    subpackage = path.parts[1].removesuffix(".py")
    if target != importer or subpackage not in order:
        return None
    if subpath[0] not in order or order.index(subpath[0]) > order.index(subpackage):
        return f"{subpackage} imports only {', '.join(order[: order.index(subpackage)]) or 'nothing'}"
    if subpath[0] == "search" and order.index(subpackage) >= order.index("scores") and subpath[1] not in PUBLIC_SEARCH:
        return f"of the search, {subpackage} imports only {', '.join(PUBLIC_SEARCH)}"
    return None


def imported_files(path: Path, type_checking: bool = True) -> set[Path]:
    """Return the files that a file imports, and the `__init__` of each package that these imports enter."""
    files = set()
    for module in imported_modules((PACKAGE / path).read_text(), path.parts, type_checking):
        full = Path(*module.split("."))
        for target in (full, full.parent):  # a module, or a name in one
            candidates = {target.with_suffix(".py"), target / "__init__.py"} & set(FILES)
            if candidates:
                files |= candidates
                files |= {folder / "__init__.py" for folder in target.parents if folder not in path.parents}
                break
    return files - {path}


def circular_files(edges: dict[Path, set[Path]]) -> list[Path]:
    """Return the files that are in a cycle of imports, or on a path between cycles."""
    remaining = dict(edges)
    while free := [file for file, targets in remaining.items() if not targets & remaining.keys()]:
        for file in free:
            del remaining[file]
    return sorted(remaining)


def test_imports_of_all_files_follow_order():
    forbidden = {
        f"{path}: {module}": reason
        for path in FILES
        for module in imported_modules((PACKAGE / path).read_text(), path.parts)
        if (reason := reason_against_import(path, module))
    }
    assert forbidden == {}


def test_imports_of_all_files_are_acyclic():
    lazy = {path for path in FILES if path.name == "__init__.py" and "def __getattr__" in (PACKAGE / path).read_text()}
    assert circular_files({path: imported_files(path, path not in lazy) for path in FILES}) == []


def test_circular_files_of_cycle_are_returned():
    a, b, c = map(Path, "abc")
    assert circular_files({a: {b}, b: {c}, c: set()}) == []
    assert circular_files({a: {b}, b: {a}, c: {a}}) == [a, b, c]
    assert Path("retrieval/deterministic.py") in imported_files(Path("retrieval/search/distance.py"))
    assert Path("uncertainty/__init__.py") in imported_files(Path("_metric.py"))  # the import enters this package
    assert Path("retrieval/__init__.py") not in imported_files(Path("retrieval/search/distance.py"))


def sibling_imports(folder: Path) -> set[tuple[str, str]]:
    """Return the pairs (file, file it imports) of one folder."""
    files = [path for path in FILES if path.parent == folder and path.name != "__init__.py"]
    return {(path.stem, target.stem) for path in files for target in imported_files(path) if target in files}


def test_folders_are_small_or_leaves_with_docstring():
    folders = {path.parent for path in FILES if len(path.parts) > 1}
    sizes = {folder: sum(path.parent == folder and path.name != "__init__.py" for path in FILES) for folder in folders}
    large = {
        str(folder): sorted(pairs)
        for folder, size in sizes.items()
        if size > MAX_FILES
        and (pairs := {pair for pair in sibling_imports(folder) if pair[1] != "base" and not pair[1].startswith("_")})
    }
    assert large == {}, f"more than {MAX_FILES} files that import each other: write into one of them, or make a folder"
    sources = {str(folder): (PACKAGE / folder / "__init__.py").read_text() for folder in folders}
    assert [folder for folder, source in sources.items() if not ast.get_docstring(ast.parse(source))] == []


def test_subpackages_of_domains_are_those_with_an_order():
    names = {
        domain: {path.parts[1].removesuffix(".py") for path in FILES if path.parts[0] == domain} - {"__init__"}
        for domain in SUBPACKAGES
    }
    assert names["structured"] - {*SUBPACKAGES["structured"]} == {
        "metametric_names"
    }  # names of another library, above all subpackages
    assert names["association"] - {*SUBPACKAGES["association"]} == {"wefe"}  # names of another library
    del names["structured"], names["association"]
    assert names == {domain: {*order} for domain, order in SUBPACKAGES.items() if domain in names}


def function_lengths(source: str) -> list[tuple[str, int]]:
    """Count the lines of each function, including nested functions and excluding its docstring."""
    lengths = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            lengths.append((node.name, lines))
    return lengths


def test_functions_of_all_files_are_short():
    files = [path for path in FILES if path.parts[0].removesuffix(".py") not in COMMAND_LINE]
    functions = ((path, *length) for path in files for length in function_lengths((PACKAGE / path).read_text()))
    assert [f"{path}: {name} has {lines}" for path, name, lines in functions if lines > MAX_LINES] == []


def test_function_lengths_of_nested_functions_leave_out_docstrings():
    source = 'def f(\n    a,\n):\n    """One.\n\n    Two."""\n    def g():\n        return a\n    return g\n'
    assert function_lengths(source) == [("f", 6), ("g", 2)]


def test_reason_against_allowed_and_forbidden_imports():
    cases = [
        ("from .._metric import Metric", ("retrieval", "knn.py"), True),
        ("from .. import _checks", ("retrieval", "knn.py"), True),
        ("from .knn import TorchKNN", ("retrieval", "centroid.py"), True),
        ("from ...assignment import linear_sum_assignment", ("retrieval", "clusters", "kmeans.py"), True),
        ("from ..search.knn import TorchKNN", ("retrieval", "scores", "centroid.py"), True),
        ("from ..search.product_filter import Filter", ("retrieval", "ranking", "rank_counts.py"), True),
        ("from ..search.product_filter import Filter", ("retrieval", "scores", "centroid.py"), False),
        ("from ..ranking.positive_ranks import rank_tiles", ("retrieval", "search", "knn.py"), False),
        ("from .search import knn", ("retrieval", "deterministic.py"), False),
        ("from ..suites.ranking import RankingScores", ("structured", "objects", "family.py"), False),
        ("from ..queries.scoring import looped_scores", ("association", "metrics", "weat.py"), False),
        ("from ..sets import word_sets", ("association", "metrics", "weat.py"), True),
        ("from ..study.study import Study", ("posterior", "plots", "drawing.py"), False),
        ("from ...retrieval import TorchKNN", ("posterior", "study", "study.py"), False),
        ("from ...uncertainty.statistics.samples import hdi", ("posterior", "comparison", "pairwise.py"), True),
        ("from ...posterior import Study", ("uncertainty", "statistics", "pooling.py"), False),
        ("from ...assignment import pairs", ("uncertainty", "statistics", "pooling.py"), False),
        ("from ..statistics.samples import hdi", ("uncertainty", "engine", "weights.py"), False),
        ("from ..._metric import Metric", ("uncertainty", "engine", "weights.py"), False),
        ("from ..._metric import Metric", ("uncertainty", "metrics", "ranked.py"), True),
        ("from .uncertainty.engine import resampling", ("_metric.py",), True),
        ("from .uncertainty.metrics.ranked import BinaryAUROC", ("_metric.py",), False),
        ("from .uncertainty import compare", ("_metric.py",), False),
        ("import tensormetrics.posterior", ("retrieval", "knn.py"), False),
        ("from ..retrieval import TorchKNN", ("assignment", "solver.py"), False),
        ("import tensormetrics", ("retrieval", "knn.py"), False),
        ("from ..._plots import broken", ("posterior", "plots", "drawing.py"), True),
        ("from .assignment import linear_sum_assignment", ("_metric.py",), False),
        ("from .posterior import Study", ("_plots.py",), False),
        ("from .retrieval import TorchKNN", ("__main__.py",), True),
    ]
    wrong_cases = []
    for source, parts, allowed in cases:
        (module,) = imported_modules(source, parts)
        if (reason_against_import(Path(*parts), module) is None) != allowed:
            wrong_cases.append((source, parts))
    assert wrong_cases == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_import_of_any_module_first_succeeds():
    """Import each module in a process that has imported torch and nothing of tensormetrics."""
    modules = [".".join(["tensormetrics", *path.with_suffix("").parts]) for path in FILES if path.name != "__main__.py"]
    program = """
import importlib, os, sys
import torch, torchmetrics
children, failed = {}, []
def wait():
    child, status = os.wait()
    module = children.pop(child)
    if status:
        failed.append(module)
for module in sys.stdin.read().split():
    if len(children) == len(os.sched_getaffinity(0)):
        wait()
    if (child := os.fork()) == 0:
        try:
            importlib.import_module(module.removesuffix(".__init__"))
        except ImportError as error:
            os._exit(0 if (error.name or "").partition(".")[0] == "triton" else print(module, error, flush=True) or 1)
        os._exit(0)
    children[child] = module
while children:
    wait()
print(*failed)
sys.exit(bool(failed))
"""
    process = subprocess.run([sys.executable, "-c", program], input="\n".join(modules), capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


OPENERS = {"open", "memmap", "open_memmap", "fromfile", "safe_open", "memory_map", "ZipFile", "GzipFile"} | {
    *("read_text", "read_bytes", "read_parquet", "read_csv", "read_index"),
}
LOADERS = {"np.load", "torch.load", "pickle.load"}
ALLOWED_OPENING_CALLS = {  # (file, call) -> why the call is allowed outside of _files.py
    ("association/embeddings/datasets.py", "joinpath('weat_word_sets.json').read_text"): "a file of the package",
    ("_info.py", "path.read_text"): "a file of the package",
    ("uncertainty/score_files.py", "read_parquet"): "of bytes that were read",
    ("retrieval/search/backends/faiss_knn.py", "read_index"): "of a stream that was opened",
}


def calls_that_open(source: str) -> list[str]:
    """Return the source text of the calls that open a file for reading."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    is_opener = {
        call: call.attr in OPENERS or ast.unparse(call) in LOADERS
        if isinstance(call, ast.Attribute)
        else ast.unparse(call) in ("open", "safe_open")
        for call in calls
    }
    return [ast.unparse(call) for call, opens in is_opener.items() if opens]


def test_calls_that_open_match_known_openers():
    source = (
        "open(p)\npath.open('rb')\nnp.load(p)\ntorch.load(p)\ngzip.open(p)\nPath(p).read_text()\njson.loads(t)\nclose()"
    )
    assert calls_that_open(source) == ["open", "path.open", "np.load", "torch.load", "gzip.open", "Path(p).read_text"]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_caller_files_are_opened_only_by_files_module(path):
    if path == Path("_files.py"):
        return
    calls = calls_that_open((PACKAGE / path).read_text())
    allowed = [call for file, call in ALLOWED_OPENING_CALLS if file == path.as_posix()]
    others = [call for call in calls if not any(call.endswith(end) for end in allowed)]
    assert others == [], "read it by a function of _files.py, and give the reader a row in tests/cases/readers.py"
