"""Experiments: what is trained, measured and drawn with the library."""
