"""Paths and dotted module names in the repository's text exist."""

import importlib
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = r"(?:py|cpp|cu|h)"
PATH = re.compile(rf"(?<![\w/.*{{}}<-])((?:[\w.-]+/)+[\w.-]+\.(?:{SOURCE}|md|json|sh|yml|toml))(?!\w)")
FILE_NAME = re.compile(rf"(?<![\w/.-])([\w-]+\.{SOURCE})(?!\w)")
MODULE = re.compile(r"(?<![\w./-])tensormetrics(?:\.[A-Za-z_]\w*)+(?![\w{])")
BUILT_FILES = {"tensormetrics/_build.json"}
SYSTEM_HEADERS = {"Python.h", "cuda_runtime.h", "setjmp.h", "ucontext.h", "locale.h", "stdlib.h"}
EXAMPLES = {"my_schema.py", "types.py", "version.py", "NAME.py", "FILE.py"}  # of a user, Python, torch; placeholders
BUILT = {"tensormetrics._build"}  # by a build, hence not in the repository
MISSPELT = {"tensormetrics.retreival"}  # on purpose, in a test of the message


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Texts of the repository by path; empty for files that may name what is gone, and for this file."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("needs a git checkout")
    texts = {}
    for name in listing.stdout.splitlines():
        texts[name] = ""
        if name in (".github/CHANGELOG.md", "tests/test_mentions.py") or name.startswith("tests/stored/"):
            continue
        with suppress(UnicodeDecodeError, FileNotFoundError):  # pictures, and files that were just moved
            texts[name] = (ROOT / name).read_text(encoding="utf-8")
    return texts


def missing_paths(texts: dict[str, str]) -> set[tuple[str, str]]:
    """Return pairs (file, path it names), where no file of the repository ends in that path."""
    folders = {part for name in texts for part in Path(name).parts[:-1]}
    suffixes = {
        "/".join(parts[start:]) for parts in (Path(name).parts for name in texts) for start in range(len(parts))
    }
    suffixes |= BUILT_FILES
    missing = set()
    for name, text in texts.items():
        paths = {path for path in PATH.findall(text) if path.split("/")[0] in folders}
        if not name.startswith("tests/"):  # whose programs write files of any name
            paths |= {*FILE_NAME.findall(text)} - SYSTEM_HEADERS
        missing |= {(name, path) for path in paths if path not in suffixes and Path(path).name not in EXAMPLES}
    return missing


def is_module_or_name(dotted: str) -> bool:
    """Tell whether the longest importable prefix of a dotted name has the rest as attributes."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            target = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "tensormetrics":
                return True  # the module exists and needs an optional package
            continue
        for name in parts[end:]:
            if not hasattr(target, name):
                return False
            target = getattr(target, name)
        return True
    return False


def test_paths_in_texts_exist(texts):
    assert missing_paths(texts) == set()


def test_missing_paths_of_a_wrong_mention_are_found():
    texts = {"a/b.py": "see c.py and a/d.py, but not x/y.py", "tests/test_e.py": "c.py, a/b.py, a/f.py"}
    assert missing_paths(texts) == {("a/b.py", "c.py"), ("a/b.py", "a/d.py"), ("tests/test_e.py", "a/f.py")}


def test_dotted_names_in_texts_exist(texts):
    mentions = {mention: name for name, text in texts.items() for mention in MODULE.findall(text)}
    wrong = {
        (name, mention)
        for mention, name in mentions.items()
        if mention not in BUILT | MISSPELT and not is_module_or_name(mention)
    }
    assert wrong == set()
    assert is_module_or_name("tensormetrics.retrieval.TorchKNN") and not is_module_or_name("tensormetrics.metric.X")


def test_map_of_the_guide_lists_all_subpackages(texts):
    rows = re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", texts[".github/CONTRIBUTING.md"], re.MULTILINE)
    described = {folder: {*re.findall(r"`(\w+)/`", contents)} for folder, contents in rows}
    folders = {str(parent) for name in texts for parent in Path(name).parents}
    assert {f"{folder}/{name}" for folder, names in described.items() for name in names} <= folders
    packages = {name.rpartition("/")[0] for name in texts if re.fullmatch(r"tensormetrics/\w+/__init__\.py", name)}
    assert packages <= described.keys()
    for folder in packages:
        assert described[folder] == {Path(name).name for name in folders if str(Path(name).parent) == folder}, folder
