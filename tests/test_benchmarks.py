"""The benchmark runner on tiny files, and the tables that benchmarks write."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PASSING = """
import sys
print("a row", *sys.argv[1:-1])
open(sys.argv[-1], "w").write("# A title\\n\\nthe table\\n")
"""
REPORT = "# Measured on 1-core-test\n\n## good_one: A title\n\nthe table\n"
FAILING = "assert 1 == 2, 'ours differs'"
LONELY = f'NEEDS = ("no_such_rival",)\n{FAILING}'


@pytest.fixture(autouse=True)
def root(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def runner(monkeypatch):
    import benchmarks.__main__ as runner

    monkeypatch.setattr(runner, "machine", lambda device: "1-core-test")
    return runner


@pytest.fixture
def run(runner, tmp_path, capfd):
    """Return a runner of main over three files; it returns the status, the output and the files of the results."""
    for name, source in {"good_one": PASSING, "bad_one": FAILING, "lonely": LONELY}.items():
        (tmp_path / f"{name}.py").write_text(source)

    def run(*arguments):
        status = runner.main(list(arguments), tmp_path)
        tables = {path.name: path.read_text() for path in (tmp_path / "results").glob("*")}
        return status, capfd.readouterr(), tables

    return run


def test_run_three_files_reports_passed_failed_and_skipped(run, tmp_path):
    status, printed, tables = run()
    assert status == 1
    assert tables == {"1-core-test.md": REPORT}
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[:2] == ["a row --device cpu --output", ""]
    bad, good, lonely, total = lines[2:]
    assert good.startswith("passed good_one") and good.endswith(f" s {tmp_path}/results/1-core-test.md")
    assert bad.startswith("failed bad_one") and bad.endswith(" s exit status 1")
    assert lonely == "skipped lonely 0 s not installed: no_such_rival"
    assert total == "1 passed, 1 failed, 1 skipped"
    assert "AssertionError: ours differs" in printed.err


def test_declared_needs_and_devices_of_real_benchmarks_are_valid(runner):
    files = {path.stem: path for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert all(set(runner.declared(file)["DEVICES"]) <= {"cpu", "cuda"} for file in files.values())
    assert runner.declared(files["assignment"]) == {"NEEDS": ("scipy",), "DEVICES": ("cpu", "cuda")}


@pytest.fixture
def report():
    from benchmarks import _report

    return _report


def test_readme_quotes_current_results(report):
    results = (ROOT / "benchmarks" / "results" / report.MACHINE).read_text()
    readme = (ROOT / "README.md").read_text()
    for marks, quotes in (report.MARKS, report.quoted(results)), (report.RATIOS, report.ratios(results)):
        section = readme.partition(marks[0])[2].partition(marks[1])[0]
        assert section == quotes, "python -m benchmarks --readme brings the README up to date"


def test_gallery_page_shows_all_pictures():
    from benchmarks import _gallery

    results = ROOT / "benchmarks" / "results"
    assert (results / "gallery.md").read_text() == _gallery.page(), "python -m benchmarks --gallery draws it"
    files = {f"{name}{suffix}.png" for name in _gallery.PICTURES for suffix in _gallery.STYLES}
    assert {file.name for file in (results / "gallery").iterdir()} == files


@pytest.mark.slow
def test_pictures_of_the_gallery_are_of_this_version():
    pytest.importorskip("matplotlib")
    from PIL import Image

    from benchmarks import _gallery

    pictures = {name: picture for name, picture in _gallery.PICTURES.items() if name != "first"}  # which is trained
    for name, picture in pictures.items():
        with Image.open(ROOT / f"benchmarks/results/gallery/{name}.png") as drawn:
            assert drawn.info["Description"] == _gallery.labels_of(picture.draw()), name


def test_gallery_write_creates_page_and_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    from benchmarks import _gallery

    _gallery.write(tmp_path)
    assert (tmp_path / "gallery.md").exists()
    assert all(file.stat().st_size > 3000 for file in (tmp_path / "gallery").iterdir())
