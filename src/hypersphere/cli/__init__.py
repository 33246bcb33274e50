"""The ``hypersphere`` command: each subcommand parses its arguments, calls the library and prints the result."""
