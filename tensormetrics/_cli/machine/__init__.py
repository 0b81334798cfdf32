"""Reports on this machine: what is installed, which GPU kernels run and are right, and their compilation.

Stands on `core` and all domains, and needs no package of the command line.
"""
