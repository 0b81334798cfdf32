"""Mutation tests: small wrong edits, one at a time, against the tests of the edited part. Survivors show untested code.

    python -m tests.mutate [--edits 60] [--skip 0] [--seed 0] [--only PART] [--list]

KNOWN edits come first, the others are sampled from comparisons, constants, axes and masks of the package, and from
comparisons of csrc. All edits are made in a copy of the repository. The exit status is 1 if an edit survived; some
survivors are no faults of the tests, because they do not change behavior.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 3600  # for each run of tests
CSRC_FRACTION = 0.1  # each edit of csrc requires a build
# Excluded files of the package: their tests run in other processes.
EXCLUDED = "_cli", "testing", "kernels", "kernels.py", "plots", "plots.py", "figures.py"
EXCLUDED_TESTS = "peers", "integrations", "ptx"  # folders of tests that need other packages or a compiler
OPERATORS = {"Lt": "<=", "LtE": "<", "Gt": ">=", "GtE": ">", "Eq": "!=", "NotEq": "=="}
REDUCTIONS = {"sum", "mean", "amax", "amin", "max", "min", "any", "all", "cumsum", "argmax", "argmin", "sort", "flip"}
LIBRARIES = {  # part of csrc -> the domain whose tests run it
    "lsa": "assignment",
    "dirichlet": "posterior",
    "nearest": "retrieval",
    "sequence": "structured",
    "subsets": "association",
    "text": "retrieval",
}


class Edit(NamedTuple):
    path: str
    start: int  # characters before the replaced text
    end: int
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def describe(self, text: str) -> str:
        line = text.count("\n", 0, self.start) + 1
        return f"{self.path}:{line}: {text[self.start : self.end]!r} -> {self.new!r}"


STAGES = "tensormetrics/retrieval/search/stages.py"
KNOWN = [  # path, correct text, wrong text: each of these edits survived once
    (STAGES, "<= 2 * error[:, None]", "<= error[:, None] / 4"),
    (STAGES, "last - error > values[:, k - 1] + error", "last > values[:, k - 1]"),
    ("tensormetrics/core/metric/state_metric.py", "store.data_ptr() == held.data_ptr() and ", ""),
    ("tensormetrics/association/sets/word_sets.py", "pooled_variance <= GRID**-2", "pooled_variance <= 0"),
]


def known_edits() -> Iterator[Edit]:
    for path, old, new in KNOWN:
        start = (ROOT / path).read_text().index(old)
        yield Edit(path, start, start + len(old), new)


def type_unions_in(node: ast.AST) -> list[ast.AST]:
    """Return the expressions of a node in which | denotes a union of types."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        return node.args
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        return [node.value] if isinstance(node.targets[0], ast.Name) and node.targets[0].id.istitle() else []
    return [part for name in ("annotation", "returns") if (part := getattr(node, name, None))]


def edits_of_python(path: str, text: str) -> Iterator[Edit]:
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def offset_of(line: int, column: int) -> int:
        full_line = text[lines[line - 1] : lines[line]]
        return lines[line - 1] + len(full_line.encode()[:column].decode())

    def gap_span(a: ast.expr, b: ast.expr) -> tuple[int, int]:
        return offset_of(a.end_lineno, a.end_col_offset), offset_of(b.lineno, b.col_offset)

    def node_span(node: ast.expr) -> tuple[int, int]:
        return offset_of(node.lineno, node.col_offset), offset_of(node.end_lineno, node.end_col_offset)

    tree = ast.parse(text)
    types = {id(part) for node in ast.walk(tree) for type_node in type_unions_in(node) for part in ast.walk(type_node)}
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            start, end = gap_span(node.left, node.comparators[0])
            kind = type(node.ops[0]).__name__
            if kind in OPERATORS:
                yield Edit(path, start, end, re.sub(r"[<>=!]=?", OPERATORS[kind], text[start:end], count=1))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            start, end = gap_span(node.left, node.right)
            swapped = text[start:end].translate(str.maketrans("&|", "|&"))
            yield Edit(path, start, end, swapped)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            start, end = gap_span(node.left, node.right)
            yield Edit(path, start, end, text[start:end].translate(str.maketrans("+-", "-+")))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            start, end = node_span(node)
            yield Edit(path, start, end, "(" + text[start + 1 : end] + ")")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REDUCTIONS:
            for argument in [*node.args[:1], *(k.value for k in node.keywords if k.arg == "dim")]:
                if ast.unparse(argument) in ("-1", "-2", "0", "1"):
                    start, end = node_span(argument)
                    yield Edit(path, start, end, {"-1": "-2", "-2": "-1", "0": "-1", "1": "0"}[text[start:end]])


def edits_of_csrc(path: str, text: str) -> Iterator[Edit]:
    for match in re.finditer(r"(?<=\w )(<=?|>=?)(?= [\w(])|(?<=\w )[+-](?= \d)", text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if "//" not in line and not re.search(r"template|#", line):
            swaps = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+"}
            yield Edit(path, match.start(), match.end(), swaps[match[0]])


def sample_edits(num_edits: int, seed: int, only: str) -> list[tuple[Edit, str]]:
    """Sample edits with the texts of their files: first the kind of file, then uniformly a file, then an edit."""
    draw, kinds = random.Random(seed), {}
    for path in sorted([*ROOT.glob("tensormetrics/**/*.py"), *ROOT.glob("csrc/*/*.[hc]*")]):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        native = name.startswith("csrc/")
        if only in name and not {*name.split("/")} & {*EXCLUDED} and path.suffix != ".cu":
            edits = list((edits_of_csrc if native else edits_of_python)(name, text))
            if edits:
                kinds.setdefault(native, []).append([(edit, text) for edit in edits])
    sample = []
    while len(sample) < num_edits and kinds:
        native = bool(kinds.get(True)) and (draw.random() < CSRC_FRACTION or not kinds.get(False))
        file = draw.choice(kinds[native])
        sample.append(file.pop(draw.randrange(len(file))))
        kinds[native] = [file for file in kinds[native] if file]
        kinds = {native: files for native, files in kinds.items() if files}
    return sample


def names_around(edit: Edit, text: str) -> list[str]:
    """Return the names of the functions and classes that contain an edit of Python."""
    line = text.count("\n", 0, edit.start) + 1
    kinds = ast.FunctionDef | ast.ClassDef
    nodes = ast.walk(ast.parse(text)) if edit.path.endswith(".py") else ()
    around = (node for node in nodes if isinstance(node, kinds) and node.lineno <= line <= (node.end_lineno or 0))
    return [node.name for node in around if not node.name.startswith("__")]


def tests_of(edit: Edit, text: str) -> list[list[str]]:
    """Return arguments of pytest for an edit, beginning with the tests most likely to fail."""
    _, part, *_ = edit.path.split("/")
    domain = LIBRARIES.get(part, part.removesuffix(".py").strip("_"))
    folder = domain_folder if (domain_folder := ROOT / "tests" / domain).is_dir() else ROOT / "tests"
    stem = Path(edit.path).stem.strip("_")
    named = re.compile(rf"\b({'|'.join([stem, *names_around(edit, text)])})\b")
    likely = [
        file.relative_to(ROOT).as_posix()
        for file in sorted(folder.rglob("test*.py"))
        if file.parent.name not in EXCLUDED_TESTS and (stem in file.name or named.search(file.read_text()))
    ]
    rest = [["tests", *(f"--ignore=tests/{name}" for name in EXCLUDED_TESTS)]]
    if folder == domain_folder:
        table = ["tests/test_conformance.py", "tests/test_distributed.py", "tests/test_operators.py"]
        table += ["-k", f"{domain}. or not [ or test_operators"]
        rest = [[f"tests/{domain}"], table]
    return [*([likely] if likely else []), *rest]


def rebuild(folder: Path) -> bool:
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    return subprocess.run(build, cwd=folder, capture_output=True).returncode == 0


def run_tests(arguments: list[str], folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    settings = os.environ | {"PYTHONPATH": str(folder)}  # for the programs that tests start
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=SECONDS)


def find_killer(edit: Edit, text: str, folder: Path) -> str:
    """Return the test that fails with the edit, or "" if the edit survives."""
    if edit.path.startswith("csrc/") and not rebuild(folder):
        return "the compiler"
    for arguments in tests_of(edit, text):
        try:
            ended = run_tests(arguments, folder)
        except subprocess.TimeoutExpired:
            return "time"
        if ended.returncode not in (0, 5):  # 5: no test of that name
            failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", ended.stdout, re.MULTILINE)
            return failed[1] if failed else " ".join(arguments)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edits", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="the number of edits that an earlier run has tried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the path of the files to edit")
    parser.add_argument("--list", action="store_true", help="only print the edits")
    options = parser.parse_args()
    edits = [(edit, (ROOT / edit.path).read_text()) for edit in known_edits() if options.only in edit.path]
    edits += sample_edits(options.edits - len(edits), options.seed, options.only)
    edits, num_survivors = edits[options.skip :], 0
    with tempfile.TemporaryDirectory() as temp_dir:
        folder = Path(temp_dir) / "copy"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "build", ".gpu", "__pycache__"))
        for edit, text in edits:
            print(edit.describe(text), end=": ", flush=True)
            if options.list:
                print()
                continue
            (folder / edit.path).write_text(edit.applied(text))
            killer = find_killer(edit, text, folder)
            (folder / edit.path).write_text(text)
            if edit.path.startswith("csrc/"):
                rebuild(folder)  # else the next edit would be tested with this library
            if "::" in killer and run_tests([killer], folder).returncode == 1:
                sys.exit(f"{killer} also fails without the edit: fix it first")
            num_survivors += not killer
            print(f"killed by {killer}" if killer else "SURVIVED", flush=True)
    print(f"{num_survivors} of {len(edits)} survived")
    return int(num_survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
