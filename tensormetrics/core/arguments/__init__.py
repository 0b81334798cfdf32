"""Checks of arguments, labels and options, their representation, progress, and names that are imported late.

Stands on torch alone.
"""
