"""Studies that use hypersphere; they are not part of the installed package."""
