"""Native operators and GPU kernels: where they are found, whether they run, and what plain torch answers instead.

Stands on `arguments`.
"""
