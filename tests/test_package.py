"""What `import tensormetrics` alone gives."""

import inspect
import json
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from cases import DOMAINS, PUBLIC
from click.testing import CliRunner

import tensormetrics
from tensormetrics.__main__ import main

PAGES = Path(tensormetrics.__file__).parent / "pages"
NAME = re.compile(rf"`((?:compat|{'|'.join(DOMAINS)})(?:\.\w+)+)")


def test_names():
    assert [name for name in dir(tensormetrics) if not name.startswith("__")] == sorted(tensormetrics.__all__)
    assert tensormetrics.retrieval is import_module("tensormetrics.retrieval")
    with pytest.raises(AttributeError, match="has no attribute 'retreival'; it has Comp.*; perhaps 'retrieval'$"):
        tensormetrics.retreival  # noqa: B018


def test_names_of_earlier_versions_have_a_place():
    """Every public name of commit d8ff508e is in the table or the list below it; what they name instead exists."""
    page = (PAGES / "migration.md").read_text().partition("## Names of earlier versions")[2]
    table, other = page.split("All other names, ")
    rows = [line.split(" | ") for line in table.splitlines() if " | " in line]
    places = [place for row in rows for place in NAME.findall(row[1])]
    listed = {name for row in rows for name in NAME.findall(row[0])}
    for place, names in re.findall(r"^- `([\w.]+)`: ([^-]*)", other, re.MULTILINE):
        places += [f"{place}.{name}" for name in re.findall(r"`(\w+)`", names)]
        listed |= {f"{place.partition('.')[0]}.{name}" for name in re.findall(r"`(\w+)`", names)}
    former = json.loads((Path(__file__).parent / "former_names.json").read_text())
    assert {f"{domain}.{name}" for domain, names in former.items() for name in names.split()} - listed == set()
    assert all(pkgutil.resolve_name(f"tensormetrics.{place}") is not None for place in places)  # raises if one is gone


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


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_module_has_the_name_of_what_its_package_exports(domain):
    """An import of the module would otherwise put it in the place of the function."""
    package = import_module(f"tensormetrics.{domain}")
    stems = {path.stem for path in Path(package.__file__).parent.iterdir()}
    assert [name for name in stems & {*package.__all__} if not inspect.ismodule(getattr(package, name))] == []


def test_options_of_one_name_have_one_default():
    defaults: dict[str, dict[str, object]] = {"seed": {}, "confidence": {}, "rope": {}, "alternative": {}}
    for name, value in PUBLIC.items():
        is_class = inspect.isclass(value) and not issubclass(value, Exception)
        if inspect.isfunction(value) or is_class:
            for parameter in inspect.signature(value).parameters.values():
                if parameter.name in defaults and parameter.default is not parameter.empty:
                    defaults[parameter.name][name] = parameter.default
    assert {*defaults["confidence"].values()} <= {0.95, None} and {*defaults["rope"].values()} == {None}
    assert {*defaults["alternative"].values()} <= {"two-sided", "greater", "less"}
    seeds = {name: seed for name, seed in defaults["seed"].items() if seed not in (0, None)}
    assert seeds == {"retrieval.TorchKMeans": 1234}  # as faiss
