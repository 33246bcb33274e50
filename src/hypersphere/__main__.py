"""``python -m hypersphere``: the same as the command ``hypersphere``."""

from .cli.main import main

raise SystemExit(main())
