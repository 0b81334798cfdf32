"""Draws of confusion matrices from their posterior, and the reading and checking of confusion matrices.

`operators` has the native sampler and its reference. Built on no other subpackage of the domain.
"""
