"""Plugin of pytest that records failures immediately, since an aborted run would not report them. After a kernel with
an invalid memory access every later call of its process fails: xdist then starts another one."""

import os

import pytest
import torch

WORKER = "PYTEST_XDIST_WORKER" in os.environ


def note(report):
    if report.failed and not WORKER:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = (crash.message if crash else str(report.longrepr)).splitlines()[0]
        reason = "its process ended" if reason.startswith("worker ") else reason
        with open(os.environ["FAILED_TESTS"], "a") as file:
            print(report.nodeid, reason, sep="\t", file=file)


pytest_runtest_logreport = pytest_collectreport = note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    result = yield
    try:
        torch.cuda.is_initialized() and torch.cuda.synchronize()
    except RuntimeError:
        if WORKER:
            os._exit(1)
    return result
