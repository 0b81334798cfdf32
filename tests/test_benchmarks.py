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


def test_run_of_one_benchmark_replaces_only_its_section(run, tmp_path):
    (tmp_path / "results").mkdir()
    report = tmp_path / "results" / "1-core-test.md"
    old = "\n## {0}: of the last run\n\nold\n".format
    report.write_text("# Measured on 1-core-test\n" + old("another") + old("bad_one") + old("good_one"))
    assert run("--only", "bad_one", "good_one")[0] == 1
    new = "\n## good_one: A title\n\nthe table\n"
    assert report.read_text() == "# Measured on 1-core-test\n" + old("another") + old("bad_one") + new


def test_quick_run_writes_tables_only_to_requested_folder(run, tmp_path):
    status, printed, tables = run("--quick", "--only", "lonely", "good_one")  # one that is skipped is no failure
    assert status == 0 and not tables
    assert printed.out.startswith("a row --quick --device cpu --output\n") and " s  table not kept\n" in printed.out
    assert run("--quick", "--only", "good_one", "--output", str(tmp_path / "there"))[0] == 0
    assert (tmp_path / "there" / "1-core-test.md").read_text() == REPORT


def test_failed_run_writes_rows_only_without_older_ones(run, tmp_path):
    (tmp_path / "bad_one.py").write_text(PASSING.replace("A title", "Cut short") + FAILING)
    assert run("--only", "bad_one")[0] == 1
    status, _, tables = run("--only", "bad_one")
    expected_tables = {"1-core-test.md": "# Measured on 1-core-test\n\n## bad_one: Cut short\n\nthe table\n"}
    assert status == 1 and tables == expected_tables
    (tmp_path / "bad_one.py").write_text(PASSING.replace("A title", "Later") + FAILING)
    assert run("--only", "bad_one")[2] == expected_tables


def test_obstacle_names_devices_that_benchmark_does_not_measure(runner, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (tmp_path / "fast.py").write_text('DEVICES = ("cuda",)\n')
    (tmp_path / "slow.py").write_text("import no_such_rival\n")
    for name, quick, device, reason in (
        ("fast", False, "cpu", "it measures on cuda, not on cpu"),
        ("fast", True, "cpu", ""),
        ("fast", False, "cuda", ""),
        ("slow", False, "cuda", "it measures on cpu, not on cuda"),
        ("slow", True, "cuda", "it measures on cpu, not on cuda"),
        ("slow", False, "cpu", ""),
    ):
        assert (runner.obstacle(tmp_path / f"{name}.py", quick, device) or "") == reason


def test_declared_needs_and_devices_of_real_benchmarks_are_valid(runner):
    files = {path.stem: path for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert all(set(runner.declared(file)["DEVICES"]) <= {"cpu", "cuda"} for file in files.values())
    assert runner.declared(files["assignment"]) == {"NEEDS": ("scipy",), "DEVICES": ("cpu", "cuda")}


@pytest.fixture
def common():
    from benchmarks import _common

    return _common


def test_table_is_written_row_by_row(common, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["a.py", "--quick", "--output", str(tmp_path / "a.md")])
    monkeypatch.setattr(common, "conditions", lambda options, packages: f"{packages}, quick {options.quick}.")
    table = common.Table(common.arguments("", ("cpu",)), "A title", ("case", "ms"), "A note.", ("numpy",))

    def rows():
        yield "first", "1"
        assert (tmp_path / "a.md").read_text().endswith("| first | 1 |\n")
        raise AssertionError("ours differs\nby much")

    table.add(rows())
    table.add([("second", "2")])
    written = ["# A title", "", "('numpy',), quick True.", "A note.", "", "| case | ms |", "| --- | --- |"]
    written += ["| first | 1 |", "| second | 2 |"]
    assert capsys.readouterr().out.splitlines() == written
    missing = ["", "Rows are missing: AssertionError: ours differs"]
    assert (tmp_path / "a.md").read_text().splitlines() == written + missing
    with pytest.raises(SystemExit) as stop:
        table.finish()
    assert stop.value.code == 1


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


def test_write_readme_fills_quotes_from_report(report, monkeypatch, tmp_path):
    quotes = [
        report.Quote("an operation", "rival", "one", "small", "ours", "theirs ms"),
        report.Quote("another", "peer", "one", "large | ours", "wall s", "wall s", "large | peer"),
    ]
    monkeypatch.setattr(report, "QUOTES", quotes)
    section = "# One\n\n| case | ours | theirs ms |\n|---|---|---|\n| small | 0.0312 (0.03; 9) | 1.25e+03 |\n\n"
    section += "| case | who | wall s |\n|---|---|---|\n| large | ours | 1,200.04 |\n| large | peer | 600 |\n"
    (tmp_path / "report.md").write_text(report.with_section("", "a-machine", "one", section))
    readme = tmp_path / "README.md"
    stale = [marks[0] + "stale\n" + marks[1] for marks in (report.RATIOS, report.MARKS)]
    readme.write_text("before\n" + "".join(stale) + "after\n")
    report.write_readme(readme, tmp_path / "report.md")
    assert readme.read_text().splitlines() == [
        "before",
        report.RATIOS[0].strip(),
        "Times faster than these, on two CPU cores, values checked first ([how](#how-fast)): rival 40,000, peer 0.5.",
        report.RATIOS[1].strip(),
        report.MARKS[0].strip(),
        "| operation | ours | theirs | theirs / ours |",
        "|---|---|---|---|",
        "| an operation | 0.0312 ms | 1.25 s, rival | 40,000 |",
        "| another | 1,200 s | 600 s, peer | 0.5 |",
        report.MARKS[1].strip(),
        "after",
    ]
    quotes[0] = quotes[0]._replace(column="lost")
    with pytest.raises(ValueError, match="^0 rows begin with 'small' and have a column 'lost', wanted one$"):
        report.write_readme(readme, tmp_path / "report.md")


def test_gallery_page_shows_all_pictures():
    from benchmarks import _gallery

    results = ROOT / "benchmarks" / "results"
    assert (results / "gallery.md").read_text() == _gallery.page(), "python -m benchmarks --gallery draws it"
    files = {f"{name}{suffix}.png" for name in _gallery.PICTURES for suffix in _gallery.STYLES}
    assert {file.name for file in (results / "gallery").iterdir()} == files


@pytest.mark.slow
def test_gallery_write_creates_page_and_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    from benchmarks import _gallery

    _gallery.write(tmp_path)
    assert (tmp_path / "gallery.md").exists()
    assert all(file.stat().st_size > 3000 for file in (tmp_path / "gallery").iterdir())


def test_machine_rates_and_fractions_of_limits():
    from benchmarks._machine import Machine, measured

    rates = measured(turns=1, size=64, copied=2**12)
    assert all(rate > 0 for rate in rates) and "billion multiply-adds" in rates.description()
    machine = Machine(float32=100.0, int8=400.0, copied=50.0)
    assert machine.fraction(2.0, float32=100) == 0.5
    assert machine.fraction(10.0, float32=200, int8=800, copied=50) == 0.5
    assert machine.fraction(4.0) == 0
