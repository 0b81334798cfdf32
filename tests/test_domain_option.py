"""The option `--domain` of the test suite."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_domain_option_keeps_one_domain_and_its_rows_of_tables():
    paths = ["tests/assignment/test_options.py", "tests/test_docstrings.py", "tests/test_checks.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--domain", "assignment", *paths]
    listing = subprocess.run([*command, "-o", "addopts="], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ids = [line for line in listing.splitlines() if "::" in line]
    assert any(line.startswith("tests/assignment/test_options.py") for line in ids)
    assert any("[assignment-HungarianMatcher]" in line for line in ids)
    lists = "test_stands_on_the_page_of_names"  # is marked as a list of what a new name needs
    assert any(lists in line for line in ids)
    assert all(line.startswith("tests/assignment/") or "[assignment-" in line or lists in line for line in ids)
