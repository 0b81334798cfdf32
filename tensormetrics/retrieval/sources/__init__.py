"""Sources of rows that are read in blocks, from files of several formats."""
