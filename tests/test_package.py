"""What `import tensormetrics` alone gives."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from cases import DOMAINS
from click.testing import CliRunner

import tensormetrics
from tensormetrics.__main__ import main


def test_names():
    assert [name for name in dir(tensormetrics) if not name.startswith("__")] == sorted(tensormetrics.__all__)
    assert tensormetrics.retrieval is import_module("tensormetrics.retrieval")
    with pytest.raises(AttributeError, match="has no attribute 'retreival'; it has Comparison, Estimate, Table"):
        tensormetrics.retreival  # noqa: B018


@pytest.mark.lists
def test_public_names_that_changed_are_listed_in_the_changelog():
    """Compare with the names of an earlier version, each removal and addition with a row of the table "Names"."""
    domains = {domain: import_module(f"tensormetrics.{domain}") for domain in DOMAINS}
    names = {f"{domain}.{name}" for domain, module in domains.items() for name in module.__all__}
    before = {*(Path(__file__).parent / "stored" / "public_names.txt").read_text().split()}
    changelog = (Path(__file__).parents[1] / ".github" / "CHANGELOG.md").read_text()
    table = changelog.partition("### Names")[2].partition("\n##")[0]
    rows = [
        [re.findall(r"`(\w+\.\w+)`", cell) for cell in line.split("|")[1:3]]
        for line in table.splitlines()
        if "|" in line
    ]
    removed, added = ({name for row in rows for name in row[side]} for side in (0, 1))
    assert removed == before - names, "a row in the table 'Names' of .github/CHANGELOG.md for each name that went"
    assert names - before - added == set(), "write a row in the table 'Names' of .github/CHANGELOG.md: | | `NAME` |"
    assert added <= names, "the table 'Names' of .github/CHANGELOG.md adds what does not exist"
    assert all(hasattr(domains[name.partition(".")[0]], name.partition(".")[2]) for name in names)


def test_version():
    assert CliRunner().invoke(main, ["--version"]).output == f"tensormetrics, version {tensormetrics.__version__}\n"


def test_a_domain_is_imported_when_it_is_named():
    code = "import sys, tensormetrics\nprint('torch' in sys.modules, 'tensormetrics.retrieval' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_the_type_checker_leaves_no_module_out():
    assert "ignore_errors" not in (Path(__file__).parents[1] / "pyproject.toml").read_text()


@pytest.mark.slow
def test_a_type_checker_knows_the_domains(tmp_path):
    pytest.importorskip("mypy")
    lines = "import tensormetrics", "tensormetrics.retrieval.TorchKNN(distanse='l2')", "tensormetrics.retreival"
    (tmp_path / "user.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(tmp_path), "user.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert 'user.py:2: error: Unexpected keyword argument "distanse" for "TorchKNN"' in done.stdout
    assert 'user.py:3: error: Module has no attribute "retreival"' in done.stdout


def test_no_file_of_uncertainty_has_the_name_of_what_it_exports():
    """`from tensormetrics.uncertainty import compare` would otherwise give a module or a function by chance."""
    files = {path.stem for path in Path(tensormetrics.uncertainty.__file__).parent.glob("*.py")}
    assert not files & {*tensormetrics.uncertainty.__all__}
