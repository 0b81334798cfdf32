"""CUDA architectures that the libraries hold code for, and whether nvcc, torch and the driver go together.

Needs the standard library alone: setup.py runs this file before anything is installed.
"""

import ctypes
import re
import subprocess

DEFAULT = 70, 75, 80, 90, 100, 120  # compute capabilities without their point, of which nvcc compiles those it knows
NEWEST_PTX = 90  # later cards of every family run it, also those between 100 and 120
NAMES = {  # of torch.utils.cpp_extension
    "Volta": "7.0+PTX",
    "Turing": "7.5+PTX",
    "Ampere": "8.0;8.6+PTX",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}


def supported(nvcc: str) -> list[int]:
    """Return the compute capabilities that a compiler knows, without their point, in ascending order."""
    capabilities = re.findall(r"sm_(\d+)\b", _output(nvcc, "--list-gpu-code"))
    return sorted({int(capability) for capability in capabilities})


def release(nvcc: str) -> str | None:
    """Return the CUDA version of a compiler, such as "12.8"."""
    match = re.search(r"release (\d+\.\d+)", _output(nvcc, "--version"))
    return match and match[1]


def cuda_of_driver() -> str | None:
    """Return the newest CUDA version that this machine's driver supports; None without a driver."""
    version = ctypes.c_int(0)
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if status or not version.value else f"{version.value // 1000}.{version.value % 1000 // 10}"


def architectures(requested: str, supported: list[int]) -> list[str]:
    """Return what nvcc compiles for: "sm_80" is code of a card, "compute_90" is PTX that the driver compiles.

    Args:
        requested: The value of `TORCH_CUDA_ARCH_LIST`; an empty one means `DEFAULT`.
        supported: The compute capabilities that nvcc can compile for.

    Raises:
        ValueError: If an entry is no architecture that nvcc can compile for.
    """
    if not requested.strip():
        selected = [capability for capability in DEFAULT if capability in supported]
        newest = [capability for capability in selected if capability <= NEWEST_PTX][-1:]
        return [f"sm_{capability}" for capability in selected] + [f"compute_{capability}" for capability in newest]
    codes: list[str] = []
    ptx: list[str] = []
    expected = ", ".join(f"{capability // 10}.{capability % 10}" for capability in supported)
    for entry in _entries(requested):
        match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", entry)
        if match is None or int(match[1] + match[2]) not in supported:
            raise ValueError(
                f"TORCH_CUDA_ARCH_LIST: got {entry!r}, wanted some of {expected}, which this nvcc compiles for"
            )
        capability = match[1] + match[2] + match[3]
        codes.append(f"sm_{capability}")
        ptx += [f"compute_{capability}"] if match[4] else []
    return [*dict.fromkeys(codes), *dict.fromkeys(ptx)]


def flags(targets: list[str]) -> list[str]:
    """Return the options by which nvcc compiles for architectures."""
    return [f"-gencode=arch=compute_{target.partition('_')[2]},code={target}" for target in targets]


def code_for(capability: tuple[int, int], targets: list[str]) -> str:
    """Return the architecture whose code a card runs, or an empty text."""
    runnable = [target for target in targets if _runs(target, capability)]
    return max(runnable, key=lambda target: (target.startswith("sm_"), _capability(target)), default="")


def conflicts(nvcc: str | None, torch: str | None, driver: str | None) -> list[str]:
    """Return a sentence for each way in which the CUDA versions of nvcc, torch and the driver do not go together.

    The runtime of nvcc is linked into the libraries: it may differ from torch's, but not be of a later major version
    than the driver's.
    """
    if nvcc is None:
        return []
    major = nvcc.partition(".")[0]
    if driver is None:
        if torch is None or _version(nvcc)[0] <= _version(torch)[0]:
            return []
        return [
            f"nvcc {nvcc} is newer than torch's CUDA {torch}: the CUDA libraries need a driver for CUDA {major}.0 or "
            f"later, torch does not; build with nvcc {torch.partition('.')[0]} for older drivers"
        ]
    if _version(nvcc)[0] > _version(driver)[0]:
        return [
            f"nvcc {nvcc} is newer than the driver, which serves CUDA {driver}: the CUDA libraries do not run with it; "
            f"install a driver for CUDA {major}.0 or later, or build with nvcc {driver.partition('.')[0]}"
        ]
    if _version(nvcc) > _version(driver):
        return [
            f"the driver serves CUDA {driver} and compiles no PTX of nvcc {nvcc}: the CUDA libraries run only on cards "
            "that they hold code for"
        ]
    return []


def _entries(requested: str) -> list[str]:
    entries = [NAMES.get(entry, entry) for entry in re.split(r"[\s;,]+", requested.strip())]
    return [part for entry in entries for part in entry.split(";") if part]


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def _runs(target: str, capability: tuple[int, int]) -> bool:
    compiled_for = _capability(target)
    if target.endswith("a"):  # for one card alone
        return compiled_for == capability
    if target.startswith("compute_") and not target.endswith("f"):
        return compiled_for <= capability
    return compiled_for[0] == capability[0] and compiled_for <= capability


def _capability(target: str) -> tuple[int, int]:
    return divmod(int(re.sub(r"\D", "", target)), 10)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))
