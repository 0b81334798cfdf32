"""The base of all metrics: states, merging, and ranks of processes.

Stands on all other rooms of `core`.
"""
