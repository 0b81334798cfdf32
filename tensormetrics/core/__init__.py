"""The ground of all packages: arguments, native code, numbers, text, results, resampling and the base of metrics.

Nothing here belongs to a domain. Its rooms import only rooms before them in this list.
"""
