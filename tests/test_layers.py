"""One rule of imports, and limits of size.

`core` imports core, in the order of its rooms; `assignment` and `uncertainty` import core; the other domains import
core, assignment and uncertainty, and never each other. The rooms of a domain form no circle. Nothing imports `compat`
or `_cli` but the root (compat, lazily) and `__main__`. Modules that are named in strings are imports too.
"""

import ast
import functools
import inspect
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import DOMAINS, FRONTS, PLACES, PUBLIC
from syntax import parse

import tensormetrics

PACKAGE = Path(tensormetrics.__file__).parent
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
ROOMS = "arguments", "native", "numbers", "text", "results", "resampling", "metric"  # of core, in order
SHARED = "assignment", "uncertainty"  # every other domain may import them
IMPORTERS = {"import_module", "__import__", "find_spec", "resolve_name"}  # functions that take names of modules
MAX_LINES = 60  # of a function without its docstring; functions of the command line that declare options may be longer
LINES = {"tensormetrics": 65_760, "tests": 51_900, "csrc": 7_360}
MAX_FRONT_NAMES = 170  # in the lists of the package and of its domains
MAX_UNTYPED = 30  # public functions and methods that return Any, object, or what no annotation says
LINES_OF_CODE = 44_180  # of tensormetrics: without docstrings, comments and blank lines


def module_name(path: Path) -> str:
    return ".".join(["tensormetrics", *path.with_suffix("").parts]).removesuffix(".__init__")


MODULES = {module_name(path): path for path in FILES}


def literal_text(node: ast.expr, path: Path) -> str | None:
    """Return the text of a string, or the start of an f-string up to what is unknown; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    known = {"__name__": module_name(path), "__package__": ".".join(["tensormetrics", *path.parts[:-1]])}
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += part.value
        elif (name := ast.unparse(part.value)) in known:
            text += known[name]
        else:
            return text.rpartition(".")[0]
    return text


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def modules_in_strings(nodes: list[ast.AST], path: Path) -> Iterator[str]:
    """Yield the modules of the package that strings name: arguments of IMPORTERS.

    Where such an argument is no string, every string of the file that is the name of a module may reach it, but for
    names of loggers.
    """
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    arguments = [call.args[0] for call in calls if called(call) in IMPORTERS and call.args]
    texts = [literal_text(argument, path) for argument in arguments]
    if None in texts:
        loggers = {id(argument) for call in calls if called(call) == "getLogger" for argument in call.args}
        texts += [literal_text(node, path) for node in nodes if isinstance(node, ast.expr) and id(node) not in loggers]
    parents = ["tensormetrics", *path.parts[:-1]]
    for text in filter(None, texts):
        level = len(text) - len(text.lstrip("."))
        full = ".".join([*parents[: len(parents) - level + 1], text[level:]]) if level else text
        if full in MODULES and full != "tensormetrics":
            yield full


def imported_modules(source: str, path: Path, type_checking: bool = True) -> set[str]:
    """Return the modules of the package, and names in them, that a file imports anywhere or names in a string.

    `type_checking=False` leaves out blocks under `if TYPE_CHECKING`, which do not run.
    """
    nodes = list(ast.walk(parse(source)))
    if not type_checking:
        blocks = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        left_out = {part for block in blocks for statement in block.body for part in ast.walk(statement)}
        nodes = [node for node in nodes if node not in left_out]
    names = set(modules_in_strings(nodes, path))
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ["tensormetrics", *path.parts[:-1]][: len(path.parts) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.partition(".")[0] == "tensormetrics"}


@functools.cache
def imports_of(path: Path, type_checking: bool = True) -> set[str]:
    """Return what a file of the package imports, its stub included, whose names are imported when they are used."""
    stub = PACKAGE / path.with_suffix(".pyi")
    lazy = imported_modules(stub.read_text(), path) if stub.exists() and type_checking else set()
    return imported_modules((PACKAGE / path).read_text(), path, type_checking) | lazy


def reason_against_import(path: Path, module: str) -> str | None:
    """Return why the file at `path` must not import `module`, or None if it may."""
    importer = path.parts[0].removesuffix(".py")
    _, target, *rest = [*module.split("."), ""]
    if target == "_version" or importer == target or importer in ("__init__", "__main__"):
        if importer != "core" or target == "_version":
            return "only the root imports compat" if (importer, target) == ("__main__", "compat") else None
        room = path.parts[1].removesuffix(".py")
        is_in_order = room in ROOMS and rest[0] in ROOMS[: ROOMS.index(room) + 1]
        return None if is_in_order else f"rooms of core import rooms before them: {', '.join(ROOMS)}"
    if target in ("compat", "_cli"):
        return f"nothing imports {target}"
    if importer in ("compat", "_cli") or (target == "core" and importer != "core"):
        return None
    allowed = () if importer in ("core", *SHARED) else SHARED
    return None if target in allowed else f"{importer} imports {', '.join(['core', *allowed])} and itself"


def imported_files(path: Path, type_checking: bool = True) -> set[Path]:
    """Return the files that a file imports, and the `__init__` of each package that these imports enter."""
    files = set()
    for module in imports_of(path, type_checking):
        name = module if module in MODULES else module.rpartition(".")[0]  # a module, or a name in one
        if name in MODULES:
            files.add(MODULES[name])
            files |= {folder / "__init__.py" for folder in MODULES[name].parents if folder not in path.parents}
    return files - {path}


def circular(edges: dict[Path, set[Path]]) -> list[Path]:
    """Return the nodes that are in a circle of imports, or on a path between circles."""
    remaining = dict(edges)
    while free := [node for node, targets in remaining.items() if not targets & remaining.keys()]:
        for node in free:
            del remaining[node]
    return sorted(remaining)


def test_imports_of_all_files_follow_the_order():
    forbidden = {
        f"{path}: {module}": reason
        for path in FILES
        for module in imports_of(path)
        if (reason := reason_against_import(path, module))
    }
    assert forbidden == {}


def test_imports_of_all_files_are_acyclic():
    lazy = {path for path in FILES if (PACKAGE / path.with_suffix(".pyi")).exists()}
    assert circular({path: imported_files(path, path not in lazy) for path in FILES}) == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_rooms_of_a_domain_form_no_circle(domain):
    edges: dict[Path, set[Path]] = {}
    for path in FILES:
        if path.parts[0] == domain and path.parts[1] != "__init__.py":
            room = Path(path.parts[1])
            targets = {Path(target.parts[1]) for target in imported_files(path) if target.parts[0] == domain}
            edges.setdefault(room, set()).update(targets - {room, Path("__init__.py")})
    assert circular(edges) == []


def test_circular_files_of_a_circle_are_returned():
    a, b, c = map(Path, "abc")
    assert circular({a: {b}, b: {c}, c: set()}) == []
    assert circular({a: {b}, b: {a}, c: {a}}) == [a, b, c]
    assert Path("retrieval/deterministic.py") in imported_files(Path("retrieval/search/distance.py"))
    assert Path("retrieval/__init__.py") not in imported_files(Path("retrieval/search/distance.py"))
    assert Path("core/resampling/__init__.py") in imported_files(Path("core/metric/base.py"))  # the import enters it


def test_reason_against_allowed_and_forbidden_imports():
    cases = [
        ("from ..core.metric.base import Metric", "retrieval/knn.py", True),
        ("from ...assignment import linear_sum_assignment", "retrieval/clusters/kmeans.py", True),
        ("from ...uncertainty.statistics.samples import hdi", "posterior/study/study.py", True),
        ("from ..numbers.quantiles import quantiles", "core/results/table.py", True),
        ("from ..results.table import Table", "core/numbers/quantiles.py", False),
        ("from ...uncertainty import compare", "core/metric/base.py", False),
        ("from ..._version import __version__", "core/metric/base.py", True),
        ("from ...retrieval import TorchKNN", "posterior/study/study.py", False),
        ("from ...assignment import pairs", "uncertainty/statistics/pooling.py", False),
        ("from ..retrieval import TorchKNN", "assignment/solver.py", False),
        ("import tensormetrics.posterior", "retrieval/knn.py", False),
        ("from ..compat import wefe", "association/wefe.py", False),
        ("from ..._cli.output import write", "posterior/plots/drawing.py", False),
        ("from ..retrieval import TorchKNN", "compat/pytorch_metric_learning.py", True),
        ("from ..compat import wefe", "_cli/options.py", False),
        ("from .retrieval import TorchKNN", "__main__.py", True),
        ("from importlib import import_module\nimport_module('tensormetrics.posterior')", "retrieval/knn.py", False),
        ("name = 'tensormetrics.posterior.study'\nimportlib.import_module(name)", "core/native/native.py", False),
        ("import_module('..posterior.study', __package__)", "retrieval/knn.py", False),
        ("import_module(f'{__package__}.posterior')", "__init__.py", True),
        ("__import__(f'{__name__}.study')", "posterior/__init__.py", True),
        ("find_spec(f'{__name__}.metric.{file}')", "core/__init__.py", False),
    ]
    wrong = []
    for source, file, is_allowed in cases:
        (module,) = imported_modules(source, Path(file))
        if (reason_against_import(Path(file), module) is None) != is_allowed:
            wrong.append((source, file))
    assert wrong == []


def test_names_in_messages_loggers_and_keys_are_no_imports():
    source = "log = getLogger('tensormetrics.association')\nimport_module(name)\nkey = 'tensormetrics.posterior/1'\n"
    source += "raise ValueError('write tensormetrics.retrieval.HitRate')"
    assert imported_modules(source, Path("core/native/native.py")) == set()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child)


def docstring_lines(tree: ast.AST) -> set[int]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    documented = (node.body[0] for node in statements(tree) if isinstance(node, kinds) and ast.get_docstring(node))
    return {line for string in documented for line in range(string.lineno, string.end_lineno + 1)}


def count_code(source: str) -> int:
    documentation = docstring_lines(parse(source))
    texts = (line.strip() for number, line in enumerate(source.splitlines(), 1) if number not in documentation)
    return sum(bool(text) and not text.startswith("#") for text in texts)


def test_front_pages_name_little_and_each_name_stands_in_one_place():
    assert len(tensormetrics.__all__) + sum(len(front.__all__) for front in FRONTS) <= MAX_FRONT_NAMES
    assert sum(len({*place.__all__}) for place in PLACES) == len(PUBLIC)


def test_public_functions_and_methods_say_what_they_return():
    classes = {base for value in PUBLIC.values() if inspect.isclass(value) for base in value.__mro__}
    ours = [cls for cls in classes if cls.__module__.startswith("tensormetrics.")]
    methods = [value for cls in ours for name, value in vars(cls).items() if not name.startswith("_")]
    functions = {value for value in (*PUBLIC.values(), *methods) if inspect.isfunction(value)}
    silent = {"typing.Any", "Any", "object", str(object), str(inspect.Signature.empty)}
    untyped = sorted(f.__qualname__ for f in functions if str(inspect.signature(f).return_annotation) in silent)
    assert len(untyped) <= MAX_UNTYPED, untyped


def test_lines_are_within_the_budget():
    files = {folder: (PACKAGE.parent / folder).rglob("*.*" if folder == "csrc" else "*.py") for folder in LINES}
    lines = {folder: sum(len(path.read_text().splitlines()) for path in paths) for folder, paths in files.items()}
    assert all(lines[folder] <= limit for folder, limit in LINES.items()), lines
    assert sum(count_code((PACKAGE / path).read_text()) for path in FILES) <= LINES_OF_CODE


def function_lengths(source: str) -> list[tuple[str, int]]:
    """Count the lines of each function, including nested functions and excluding its docstring."""
    lengths = []
    for node in statements(parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            lengths.append((node.name, lines))
    return lengths


def test_names_of_classes_are_used_once():
    """Those of `compat` are the names of its peers."""
    files = [PACKAGE / path for path in FILES if path.parts[0] != "compat"]
    nodes = (node for path in files for node in ast.walk(parse(path.read_text())) if isinstance(node, ast.ClassDef))
    assert [name for name, count in Counter(node.name for node in nodes).items() if count > 1] == []


def test_functions_of_all_files_are_short():
    files = [path for path in FILES if path.parts[0].removesuffix(".py") not in ("_cli", "__main__")]
    functions = ((path, *length) for path in files for length in function_lengths((PACKAGE / path).read_text()))
    assert [f"{path}: {name} has {lines}" for path, name, lines in functions if lines > MAX_LINES] == []


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
ALLOWED_OPENING_CALLS = {  # (file, call) -> why the call is allowed outside of core/text/files.py
    ("association/embeddings/datasets.py", "joinpath('weat_word_sets.json').read_text"): "a file of the package",
    ("_cli/machine/info.py", "path.read_text"): "a file of the package",
    ("_cli/names.py", "read_text"): "a file of the package",
    ("_cli/options.py", "read_text"): "a file of the package",
    ("core/arguments/lazy.py", "read_text"): "a file of the package",
    ("uncertainty/item_scores/records.py", "read_parquet"): "of bytes that were read",
    ("retrieval/search/backends/faiss_knn.py", "read_index"): "of a stream that was opened",
}


def calls_that_open(source: str) -> list[str]:
    """Return the source text of the calls that open a file for reading."""
    calls = (node.func for node in ast.walk(parse(source)) if isinstance(node, ast.Call))
    is_opener = {
        call: call.attr in OPENERS or ast.unparse(call) in LOADERS
        if isinstance(call, ast.Attribute)
        else ast.unparse(call) in ("open", "safe_open")
        for call in calls
    }
    return [ast.unparse(call) for call, opens in is_opener.items() if opens]


def is_allowed(path: Path, call: str) -> bool:
    return any(path.as_posix() == file and call.endswith(end) for file, end in ALLOWED_OPENING_CALLS)


def test_caller_files_are_opened_only_by_files_module():
    others = {
        path.as_posix(): calls
        for path in set(FILES) - {Path("core/text/files.py")}
        if (calls := [call for call in calls_that_open((PACKAGE / path).read_text()) if not is_allowed(path, call)])
    }
    assert others == {}, "read it by a function of core/text/files.py; the reader needs a row in tests/cases/readers.py"
