"""What the benchmarks share. They are run as files, so that each finds this one as `_common`."""

import os
import platform
import re

import torch


def machine(device: str = "cpu") -> str:
    """The machine in the name of a table: 2-core-x86-avx512 for a CPU, nvidia-h200 for a GPU."""
    if device.startswith("cuda"):
        return re.sub(r"\W+", "-", torch.cuda.get_device_name(device).lower())
    vectors = re.search("AVX(512|2)", torch.backends.cpu.get_cpu_capability())
    parts = (f"{os.cpu_count()}-core", platform.machine().replace("x86_64", "x86"), vectors and vectors[0].lower())
    return "-".join(filter(None, parts))
