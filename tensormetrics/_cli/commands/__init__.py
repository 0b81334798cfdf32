"""A function for each command, whose signature and docstring `options` reads; imported when it runs."""
