"""Compile every Triton kernel for some cards with the Triton of this process, and print what fails.

    PYTHONPATH=FOLDER_OF_A_TRITON:$PYTHONPATH python tests/triton_kernels.py 80 90

prints a line of JSON: the version, the number of compiled kernels, and the error of each that failed.
"""

import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in (".", "association", "retrieval")]


def failures(architectures: list[int]) -> tuple[int, dict[str, str]]:
    import test_kernels_compile
    import test_resampling_kernels_compile

    num_kernels, failed = 0, {}
    for module in (test_kernels_compile, test_resampling_kernels_compile):
        for name, launch in module.LAUNCHES.items():
            for architecture in architectures:
                num_kernels += 1
                try:
                    kernel = module.compile_kernel(*launch, architecture)
                    assert len(kernel.asm["cubin"]) > 0
                except Exception as error:  # any is what a user would see
                    failed[f"{name}, sm_{architecture}"] = f"{type(error).__name__}: {error}"[:300]
    return num_kernels, failed


if __name__ == "__main__":
    import triton

    num_kernels, failed = failures([int(architecture) for architecture in sys.argv[1:]])
    print(json.dumps({"version": triton.__version__, "kernels": num_kernels, "failed": failed}))
