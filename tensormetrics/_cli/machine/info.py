"""`python -m tensormetrics info`: versions, native code, extras, and what to do where something is missing."""

import json
import platform
import shlex
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import torch

from ... import assignment, association, posterior, retrieval, structured  # noqa: F401  they register kernels
from ...core.native import gpu_kernels, native
from . import cuda_build

INSTALL = "pip install --no-build-isolation -e ."
COMPILE = "pip install --no-build-isolation --force-reinstall --no-deps ."


def report() -> str:
    return "\n".join([*_versions(), *_code(), *_extras()])


def _versions() -> Iterator[str]:
    ours = _version("tensormetrics") or "(not installed)"
    yield f"tensormetrics {ours}, Python {platform.python_version()}, torch {torch.__version__}"
    yield f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads; GPU: {_gpu()}"


def _gpu() -> str:
    if not torch.cuda.is_available():
        return "none that this torch sees"
    return ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))


def _code() -> Iterator[str]:
    record = _record()
    compilers = "; ".join(f"{language}: {name}" for language, name in record.get("compilers", {}).items())
    yield ""
    seconds = f", in {record['seconds']:.0f} s" if "seconds" in record else ""
    yield "native code" + (f", compiled with {compilers}, for torch {record['torch']}{seconds}" if compilers else "")
    missing = []
    for name, operator in native.OPERATORS.items():
        cpu, cuda = (native.has_kernel(name, device) for device in ("cpu", "cuda"))
        where = "CPU and CUDA" if cpu and cuda else "CPU" if cpu else "CUDA" if cuda else ""
        answer = where or f"missing: about {operator.slower:g} times slower"
        yield f"  {name:<16} {answer:<38} {operator.used_by}"
        missing += [] if cpu else [operator.library]
    for library in dict.fromkeys(missing):
        yield f"  {library} for CPU: {_why(library, record)}"
    if torch.version.cuda:
        for library in ("lsa", "dirichlet"):
            if not native.has_kernel({"lsa": "lsa", "dirichlet": "dirichlet_sums"}[library], "cuda"):
                yield f"  {library} for CUDA: {_why(f'{library}_cuda', record)}"
    yield from _cuda(record)
    if missing:
        yield f"  To compile it: install GCC 11 or later, or Clang, and in a copy of the sources type: {COMPILE}"
    has_triton = find_spec("triton") is not None
    use = "used on GPUs where a trial succeeds" if has_triton else "no triton here: on GPUs plain torch answers"
    yield f"  Triton kernels: {use}"
    yield from _devices(record)


def _cuda(record: dict[str, Any]) -> Iterator[str]:
    """Yield the CUDA versions of the build and of this machine, and the cards that the libraries hold code for."""
    built = record.get("cuda", {})
    if not built and not torch.version.cuda:
        return
    nvcc, driver = built.get("nvcc"), cuda_build.cuda_of_driver()
    versions = f"nvcc {nvcc or 'none'}, torch {torch.version.cuda or 'none'}, driver {driver or 'none'}"
    at_build = f"at the build: torch {built.get('torch') or 'none'}, driver {built.get('driver') or 'none'}"
    yield f"  CUDA: {versions}{f' ({at_build})' if built else ''}"
    yield f"  CUDA libraries hold code for: {', '.join(record.get('architectures', [])) or 'none'}"
    for conflict in cuda_build.conflicts(nvcc, torch.version.cuda, driver):
        yield f"  {conflict}"


def _code_of(capability: tuple[int, int], record: dict[str, Any]) -> str:
    card, code = "sm_{}{}".format(*capability), cuda_build.code_for(capability, record.get("architectures", []))
    if not code:
        advice = "TORCH_CUDA_ARCH_LIST={}.{} builds it".format(*capability)
        return f"{card}, which the CUDA libraries hold no code for: {advice}"
    if code.startswith("compute_"):
        return f"{card}, for which the driver compiles the CUDA libraries' {code} at the first use"
    return f"{card}, which the CUDA libraries were built for" + ("" if code == card else f", by {code}")


def _devices(record: dict[str, Any]) -> Iterator[str]:
    """Yield the state of each family of kernels on each GPU, and whether the libraries were built for it."""
    if gpu_kernels.kernels_disabled():
        yield "  TENSORMETRICS_PLAIN is set: on GPUs plain torch answers"
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        device = torch.device("cuda", index)
        yield ""
        yield f"{device}: {torch.cuda.get_device_name(device)}, {_code_of(gpu_kernels.capability_of(device), record)}"
        for name, answer in gpu_kernels.answers(device).items():
            yield f"  {name:<20} {'runs' if answer.runs else answer.reason}"


def _why(library: str, record: dict[str, Any]) -> str:
    if library in native.UNLOADED:
        return f"cannot be loaded: {native.UNLOADED[library]}"
    if library in record.get("failed", {}):
        return f"could not be compiled: {record['failed'][library]}"
    if library in record.get("libraries", []):
        return "compiled without the file that holds it"
    return "was not compiled; TENSORMETRICS_CUDA=1 insists on it" if library.endswith("_cuda") else "was not compiled"


def _record() -> dict[str, Any]:
    path = native.FOLDER / "_build.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _extras() -> Iterator[str]:
    from packaging.requirements import Requirement  # torchmetrics brings it

    yield ""
    try:
        about = metadata.metadata("tensormetrics")
    except metadata.PackageNotFoundError:
        yield f"extras: not known, for tensormetrics is not installed; in a copy of the sources type: {INSTALL}"
        return
    requirements = [Requirement(line) for line in about.get_all("Requires-Dist") or []]
    yield "extras"
    for extra in about.get_all("Provides-Extra") or []:
        missing = {requirement.name: _written(requirement) for requirement in _missing(extra, requirements)}
        # Packages by name: no index has tensormetrics, and its sources may be elsewhere.
        command = " ".join(shlex.quote(written) for _, written in sorted(missing.items()))
        answer = f"lacks {', '.join(sorted(missing))}: pip install {command}" if missing else "there"
        yield f"  {extra:<16} {answer}"


def _written(requirement: Any) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def _missing(extra: str, requirements: list[Any]) -> Iterator[Any]:
    """Yield the requirements of an extra that are not installed."""
    for requirement in requirements:
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "tensormetrics":
            for inner in requirement.extras:
                yield from _missing(inner, requirements)
        elif _version(requirement.name) is None:
            yield requirement


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
