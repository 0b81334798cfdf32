"""Paths that the repository's text names exist."""

import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = r"(?:py|cpp|cu|h)"
PATH = re.compile(rf"(?<![\w/.*{{}}<-])((?:[\w.-]+/)+[\w.-]+\.(?:{SOURCE}|md|json|sh|yml|toml))(?!\w)")
FILE_NAME = re.compile(rf"(?<![\w/.-])([\w-]+\.{SOURCE})(?!\w)")
BUILT_FILES = {"tensormetrics/_build.json"}
SYSTEM_HEADERS = {"Python.h", "cuda_runtime.h", "setjmp.h", "ucontext.h", "locale.h", "stdlib.h"}
EXAMPLES = {"my_schema.py", "types.py", "version.py", "NAME.py", "FILE.py"}  # of a user, Python, torch; placeholders


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Texts of the repository by path; empty for documents of others, and for examples of wrong paths."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("needs a git checkout")
    texts = {}
    for name in listing.stdout.splitlines():
        texts[name] = ""
        if name in ("tests/test_layers.py", "tests/test_mentions.py") or name.startswith("tests/documents/"):
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


def test_paths_in_texts_exist(texts):
    assert missing_paths(texts) == set()
