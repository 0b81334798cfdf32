"""Rows that lie in files and are read in pieces: what a source of rows is, and those of several kinds of files."""
