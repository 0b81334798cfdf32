"""Files that users name, opened in one place, and columns of text.

Stands on `arguments` and `native`.
"""
