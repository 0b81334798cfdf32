"""Small wrong edits, one at a time, each against the tests of its part: those that live show what no test holds.

    python -m tests.mutate [--edits 60] [--skip 0] [--seed 0] [--only PART] [--list]

KNOWN edits come first, the rest is drawn from comparisons, constants, axes and masks of the package, and from
comparisons of csrc. Nothing here is changed: edits are made in a copy. The status is 1 if one lived; some that live are
no faults, because they change nothing that can be seen.
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
SHARE_OF_CSRC = 0.1  # each wants a build
LEFT_OUT = "_cli", "_demo.py", "testing", "kernels", "kernels.py", "plots", "plots.py", "figures.py"  # run elsewhere
APART = "peers", "integrations", "ptx"  # folders of tests that need packages or a compiler
OPERATORS = {"Lt": "<=", "LtE": "<", "Gt": ">=", "GtE": ">", "Eq": "!=", "NotEq": "=="}
REDUCTIONS = {"sum", "mean", "amax", "amin", "max", "min", "any", "all", "cumsum", "argmax", "argmin", "sort", "flip"}
LIBRARIES = {  # part of csrc -> the domain whose tests see it
    "lsa": "assignment",
    "dirichlet": "posterior",
    "nearest": "retrieval",
    "sequence": "structured",
    "subsets": "association",
    "text": "retrieval",
}


class Edit(NamedTuple):
    path: str
    start: int  # of what is replaced, in characters
    end: int
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def describe(self, text: str) -> str:
        line = text.count("\n", 0, self.start) + 1
        return f"{self.path}:{line}: {text[self.start : self.end]!r} -> {self.new!r}"


WAYS = "tensormetrics/retrieval/search/stages.py"
KNOWN = [  # path, what stands there, what a wrong edit makes of it: each of these lived once
    (WAYS, "<= 2 * error[:, None]", "<= error[:, None] / 4"),
    (WAYS, "last - error > values[:, k - 1] + error", "last > values[:, k - 1]"),
    ("tensormetrics/_metric.py", "store.data_ptr() == held.data_ptr() and ", ""),
    ("tensormetrics/association/sets/word_sets.py", "pooled_variance <= GRID**-2", "pooled_variance <= 0"),
]


def known() -> Iterator[Edit]:
    for path, old, new in KNOWN:
        start = (ROOT / path).read_text().index(old)
        yield Edit(path, start, start + len(old), new)


def types_in(node: ast.AST) -> list[ast.AST]:
    """Expressions in which | makes a type of two."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        return node.args
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        return [node.value] if isinstance(node.targets[0], ast.Name) and node.targets[0].id.istitle() else []
    return [part for name in ("annotation", "returns") if (part := getattr(node, name, None))]


def edits_of_python(path: str, text: str) -> Iterator[Edit]:
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def place(line: int, column: int) -> int:
        whole = text[lines[line - 1] : lines[line]]
        return lines[line - 1] + len(whole.encode()[:column].decode())

    def between(a: ast.expr, b: ast.expr) -> tuple[int, int]:
        return place(a.end_lineno, a.end_col_offset), place(b.lineno, b.col_offset)

    def whole(node: ast.expr) -> tuple[int, int]:
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    tree = ast.parse(text)
    types = {id(part) for node in ast.walk(tree) for side in types_in(node) for part in ast.walk(side)}
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            start, end = between(node.left, node.comparators[0])
            kind = type(node.ops[0]).__name__
            if kind in OPERATORS:
                yield Edit(path, start, end, re.sub(r"[<>=!]=?", OPERATORS[kind], text[start:end], count=1))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            start, end = between(node.left, node.right)
            swapped = text[start:end].translate(str.maketrans("&|", "|&"))
            yield Edit(path, start, end, swapped)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            start, end = between(node.left, node.right)
            yield Edit(path, start, end, text[start:end].translate(str.maketrans("+-", "-+")))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            start, end = whole(node)
            yield Edit(path, start, end, "(" + text[start + 1 : end] + ")")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REDUCTIONS:
            for argument in [*node.args[:1], *(k.value for k in node.keywords if k.arg == "dim")]:
                if ast.unparse(argument) in ("-1", "-2", "0", "1"):
                    start, end = whole(argument)
                    yield Edit(path, start, end, {"-1": "-2", "-2": "-1", "0": "-1", "1": "0"}[text[start:end]])


def edits_of_csrc(path: str, text: str) -> Iterator[Edit]:
    for match in re.finditer(r"(?<=\w )(<=?|>=?)(?= [\w(])|(?<=\w )[+-](?= \d)", text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if "//" not in line and not re.search(r"template|#", line):
            swaps = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+"}
            yield Edit(path, match.start(), match.end(), swaps[match[0]])


def drawn(number: int, seed: int, only: str) -> list[tuple[Edit, str]]:
    """Edits and the texts they are made in; of each kind of file a share, of each file alike many."""
    draw, kinds = random.Random(seed), {}
    for path in sorted([*ROOT.glob("tensormetrics/**/*.py"), *ROOT.glob("csrc/*/*.[hc]*")]):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        native = name.startswith("csrc/")
        if only in name and not {*name.split("/")} & {*LEFT_OUT} and path.suffix != ".cu":
            found = list((edits_of_csrc if native else edits_of_python)(name, text))
            if found:
                kinds.setdefault(native, []).append([(edit, text) for edit in found])
    chosen = []
    while len(chosen) < number and kinds:
        native = bool(kinds.get(True)) and (draw.random() < SHARE_OF_CSRC or not kinds.get(False))
        file = draw.choice(kinds[native])
        chosen.append(file.pop(draw.randrange(len(file))))
        kinds[native] = [file for file in kinds[native] if file]
        kinds = {native: files for native, files in kinds.items() if files}
    return chosen


def names_around(edit: Edit, text: str) -> list[str]:
    """The functions and classes that an edit of Python lies in."""
    line = text.count("\n", 0, edit.start) + 1
    kinds = ast.FunctionDef | ast.ClassDef
    nodes = ast.walk(ast.parse(text)) if edit.path.endswith(".py") else ()
    around = (node for node in nodes if isinstance(node, kinds) and node.lineno <= line <= (node.end_lineno or 0))
    return [node.name for node in around if not node.name.startswith("__")]


def tests_of(edit: Edit, text: str) -> list[list[str]]:
    """What to run for an edit, the likeliest to see it first: arguments of pytest."""
    _, part, *_ = edit.path.split("/")
    domain = LIBRARIES.get(part, part.removesuffix(".py").strip("_"))
    folder = of_domain if (of_domain := ROOT / "tests" / domain).is_dir() else ROOT / "tests"
    stem = Path(edit.path).stem.strip("_")
    named = re.compile(rf"\b({'|'.join([stem, *names_around(edit, text)])})\b")
    near = [
        file.relative_to(ROOT).as_posix()
        for file in sorted(folder.rglob("test*.py"))
        if file.parent.name not in APART and (stem in file.name or named.search(file.read_text()))
    ]
    rest = [["tests", *(f"--ignore=tests/{name}" for name in APART)]]
    if folder == of_domain:
        table = ["tests/test_conformance.py", "tests/test_distributed.py", "tests/test_operators.py"]
        table += ["-k", f"{domain}. or not [ or test_operators"]
        rest = [[f"tests/{domain}"], table]
    return [*([near] if near else []), *rest]


def builds(folder: Path) -> bool:
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    return subprocess.run(build, cwd=folder, capture_output=True).returncode == 0


def tested(arguments: list[str], folder: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    settings = os.environ | {"PYTHONPATH": str(folder)}  # for the programs that tests start
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=SECONDS)


def kills(edit: Edit, text: str, folder: Path) -> str:
    """The test that fails with the edit; "" if it lives."""
    if edit.path.startswith("csrc/") and not builds(folder):
        return "the compiler"
    for arguments in tests_of(edit, text):
        try:
            ended = tested(arguments, folder)
        except subprocess.TimeoutExpired:
            return "time"
        if ended.returncode not in (0, 5):  # 5: no test of that name
            failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", ended.stdout, re.MULTILINE)
            return failed[1] if failed else " ".join(arguments)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edits", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="how many of them an earlier run has tried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the path of the files to edit")
    parser.add_argument("--list", action="store_true", help="only say what would be edited")
    options = parser.parse_args()
    edits = [(edit, (ROOT / edit.path).read_text()) for edit in known() if options.only in edit.path]
    edits += drawn(options.edits - len(edits), options.seed, options.only)
    edits, lived = edits[options.skip :], 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "copy"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "build", ".gpu", "__pycache__"))
        for edit, text in edits:
            print(edit.describe(text), end=": ", flush=True)
            if options.list:
                print()
                continue
            (folder / edit.path).write_text(edit.applied(text))
            killer = kills(edit, text, folder)
            (folder / edit.path).write_text(text)
            if edit.path.startswith("csrc/"):
                builds(folder)  # else the next edit meets the library of this one
            if "::" in killer and tested([killer], folder).returncode == 1:
                sys.exit(f"{killer} fails without the edit too: mend it first")
            lived += not killer
            print(f"killed by {killer}" if killer else "LIVED", flush=True)
    print(f"{lived} of {len(edits)} lived")
    return int(lived > 0)


if __name__ == "__main__":
    sys.exit(main())
