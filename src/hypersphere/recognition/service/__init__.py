"""Recognition over HTTP: embeddings, comparison, a gallery of persons, search, and a small page. Needs the extra ``serve``."""

from ..._extras import require

for _module in ("fastapi", "uvicorn", "python_multipart"):
    require(_module, "serve")

from .app import create_app  # noqa: E402
from .batching import Batcher  # noqa: E402
from .bearer_keys import BearerKeys  # noqa: E402
from .desk import Desk  # noqa: E402
from .engine import Engine  # noqa: E402
from .limits import Limits  # noqa: E402
from .refusals import Refusal  # noqa: E402
from .serving import serve  # noqa: E402

__all__ = ["Batcher", "BearerKeys", "Desk", "Engine", "Limits", "Refusal", "create_app", "serve"]
