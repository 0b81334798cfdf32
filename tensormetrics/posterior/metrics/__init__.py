"""Classification metrics as functions of confusion matrices: a table of formulas, averages, and names with options.

Built on `sampling`.
"""
