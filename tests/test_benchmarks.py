"""The runner of the benchmarks, on tiny files of its kind; and that it knows every real one."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PASSING = """
import sys
print("a row", *sys.argv[1:-1])
open(sys.argv[-1], "w").write("the table")
"""
FAILING = "assert 1 == 2, 'ours differs'"


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    import benchmarks.__main__ as runner

    monkeypatch.setattr(runner, "machine", lambda device: "1-core-test")
    return runner


@pytest.fixture
def run(runner, tmp_path, capfd):
    """Runs main over three files; returns its status, what it printed and the files of `tmp_path / results`."""
    benchmarks = {
        "good_one": runner.Benchmark(write=("--write",), quick=("--small",)),
        "bad_one": runner.Benchmark(),
        "lonely": runner.Benchmark(needs=("no_such_rival",)),
    }
    for name, source in {"good_one": PASSING, "bad_one": FAILING, "lonely": FAILING}.items():
        (tmp_path / f"{name}.py").write_text(source)

    def run(*arguments):
        status = runner.main(list(arguments), benchmarks, tmp_path)
        tables = {path.name: path.read_text() for path in (tmp_path / "results").glob("*")}
        return status, capfd.readouterr(), tables

    return run


def test_one_passes_one_fails_one_is_skipped(run, tmp_path):
    status, printed, tables = run()
    assert status == 1
    assert tables == {"good-one-1-core-test.md": "the table"}
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert lines[:2] == ["a row --write", ""]
    good, bad, lonely, total = lines[2:]
    assert good.startswith("passed good_one") and good.endswith(f" s {tmp_path}/results/good-one-1-core-test.md")
    assert bad.startswith("failed bad_one") and bad.endswith(" s exit status 1")
    assert lonely == "skipped lonely 0 s not installed: no_such_rival"
    assert total == "1 passed, 1 failed, 1 skipped"
    assert "AssertionError: ours differs" in printed.err


def test_a_failed_run_leaves_the_last_table_alone(run, tmp_path):
    (tmp_path / "results").mkdir()
    table = tmp_path / "results" / "bad-one-1-core-test.md"
    table.write_text("of the last run")
    assert run("--only", "bad_one")[0] == 1
    assert table.read_text() == "of the last run"


def test_skipped_is_not_failed(run):
    status, _, tables = run("--only", "lonely", "good_one")
    assert status == 0 and len(tables) == 1


def test_a_quick_run_keeps_its_tables_where_it_is_told(run, tmp_path):
    status, printed, tables = run("--quick", "--only", "good_one")
    assert status == 0 and not tables
    assert printed.out.startswith("a row --small --write\n") and " s  table not kept\n" in printed.out
    assert run("--quick", "--only", "good_one", "--output", str(tmp_path / "there"))[0] == 0
    assert (tmp_path / "there" / "good-one-1-core-test.md").read_text() == "the table"


def test_a_file_that_only_prints(runner, tmp_path):
    (tmp_path / "printing.py").write_text("import sys; print(sys.argv[1:])")
    file, table = tmp_path / "printing.py", tmp_path / "printing-1-core-test.md"
    assert runner.run(file, runner.Benchmark(write=None, devices=("cpu", "cuda")), table, False, "cuda") == ""
    assert table.read_text() == "# printing-1-core-test\n\n['--device', 'cuda']\n"


def test_a_table_that_is_not_written_is_a_failure(runner, tmp_path):
    (tmp_path / "silent.py").write_text("")
    wrong = runner.run(tmp_path / "silent.py", runner.Benchmark(), tmp_path / "none.md", False, "cpu")
    assert wrong == "it wrote no table"


@pytest.mark.parametrize(
    "quick, device, reason", [(True, "cpu", "it has no quick run"), (False, "cuda", "it does not run on cuda")]
)
def test_what_a_benchmark_does_not_do(runner, quick, device, reason):
    assert runner.obstacle(runner.Benchmark(), quick, device) == reason


def test_a_device_that_is_not_there(run, runner, monkeypatch, capfd):
    monkeypatch.setattr(runner.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        run("--device", "cuda")
    assert stop.value.code == 2
    message = "error: --device cuda: torch sees no GPU here; leave it out to run on the CPU\n"
    assert capfd.readouterr().err.endswith(message)


def test_every_benchmark_is_known(runner):
    files = {path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")}
    assert files == set(runner.BENCHMARKS)


def test_names_of_machines(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import _common

    monkeypatch.setattr(_common.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(_common.platform, "machine", lambda: "x86_64")
    for capability, name in {"AVX512": "2-core-x86-avx512", "AVX2": "2-core-x86-avx2", "DEFAULT": "2-core-x86"}.items():
        monkeypatch.setattr(_common.torch.backends.cpu, "get_cpu_capability", lambda c=capability: c)
        assert _common.machine() == name
    monkeypatch.setattr(_common.torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert _common.machine("cuda") == "nvidia-h200"
