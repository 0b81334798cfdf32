"""The command line: a file declares the options of a command, `commands` does the work, `inputs` reads files."""
