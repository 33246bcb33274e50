"""The ``hypersphere`` command: thin layers that parse, call the library and print."""
