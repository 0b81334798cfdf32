"""Behavior of every command: help, completion, interruption and closed pipes."""

import os
import subprocess
import sys

from running import run

from tensormetrics.__main__ import COMMANDS
from tensormetrics._cli import names
from tensormetrics._cli.commands import installation, posterior
from tensormetrics._cli.commands.association import METRICS
from tensormetrics._cli.machine import warm_up
from tensormetrics.association.queries.run_queries import CORRECTIONS
from tensormetrics.posterior.extend import AVERAGING_REGISTRY, METRIC_REGISTRY
from tensormetrics.retrieval.calculator.metric_names import NAMES
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.structured.suites.entities.tags import MODES


def run_python(code, **environment):
    """Run code in a new process. Return its output and the names of the imported modules."""
    code = f"import sys\nfrom tensormetrics.__main__ import main\n{code}\nprint('MODULES', *sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    printed, _, modules = done.stdout.partition("MODULES")
    return printed, modules.split()


def test_help_of_every_command_imports_neither_torch_nor_numpy():
    words = [["--help"], *([command, "--help"] for command in COMMANDS)]
    printed, modules = run_python(f"for words in {words}:\n    try: main(words)\n    except SystemExit: pass")
    assert all(f"\n  {name} " in printed and f"Usage: -c {name}" in printed for name in COMMANDS)
    assert not {"torch", "numpy"} & {*modules} and "click" in modules


def test_names_in_help_are_those_of_the_library():
    assert {METRICS[name] for name in names.ASSOCIATION} == {*METRICS.values()}
    assert names.RETRIEVAL == ", ".join(NAMES).replace("{k}", "K")
    assert (names.DISTANCES, names.TAGS, names.CORRECTIONS) == (tuple(DISTANCES), MODES, CORRECTIONS)
    for registry, help_names in (METRIC_REGISTRY, names.POSTERIOR), (AVERAGING_REGISTRY, names.POSTERIOR_AVERAGES):
        kinds = [registry[name] for name in help_names.split(", ")]
        assert {*kinds} == {*registry.values()} and len(kinds) == len({*kinds})


def test_completion_lists_commands_options_and_choices():
    assert "_TENSORMETRICS_COMPLETE=bash_source" in run("--help").output
    for words, completion in {
        "tensormetrics po": "plain,posterior",
        "tensormetrics retrieval --ref": "plain,--reference",
        "tensormetrics retrieval --knn f": "plain,faiss",
    }.items():
        environment = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        code = "try: main(prog_name='tensormetrics')\nexcept SystemExit: pass"
        printed, modules = run_python(code, _TENSORMETRICS_COMPLETE="bash_complete", **environment)
        assert completion in printed.split() and "torch" not in modules


def test_ctrl_c_prints_one_line_with_status_130(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(posterior, "_read_matrix", interrupted)
    result = run("posterior m.csv --json", tmp_path / "o.json")
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (130, "", "tensormetrics: interrupted")
    assert not list(tmp_path.iterdir())


def test_help_with_closed_pipe_prints_no_error():
    command = f'"{sys.executable}" -m tensormetrics --help | true'
    assert subprocess.run(command, shell=True, capture_output=True).stderr == b""


def test_no_command_prints_help_with_status_2():
    result = run("")
    assert result.exit_code == 2 and "Commands:" in result.stderr


def test_warm_up_without_a_gpu_exits_with_advice(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = run("info --warm-up")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr.startswith("tensormetrics: no GPU that this torch sees") and "TRITON_CACHE_DIR" in result.stderr
    )


def test_warm_up_runs_each_job_and_prints_the_cache(monkeypatch):
    class Pool:
        def __init__(self, workers, context):
            done.append(workers)

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

        def map(self, function, *arguments):
            done.extend(zip(*arguments, strict=True))
            return []

    done = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "some card")
    monkeypatch.setattr(installation, "find_spec", lambda name: True)
    monkeypatch.setattr(installation, "ProcessPoolExecutor", Pool)
    monkeypatch.setenv("TRITON_CACHE_DIR", "/kept")
    result = run("info --warm-up --columns 64 --processes 3")
    assert result.exit_code == 0 and "some card with rows of 64 columns" in result.output and "/kept" in result.output
    assert done == [3, *((job, "cuda") for job in warm_up.jobs((64,)))] and len(done) == 9
