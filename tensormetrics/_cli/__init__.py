"""The command line: `commands` has a function for each command, `options` reads its signature, `inputs` reads files."""
