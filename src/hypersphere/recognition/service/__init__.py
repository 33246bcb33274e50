"""Recognition over HTTP: embeddings, comparison, a gallery of persons, search, and a small page. Needs the extra ``serve``."""

from ..._extras import require

for _module in ("fastapi", "uvicorn", "python_multipart"):
    require(_module, "serve")

from .album_app import AlbumAccess, create_album_app  # noqa: E402
from .app import create_app  # noqa: E402
from .batching import Batcher  # noqa: E402
from .bearer_keys import BearerKeys  # noqa: E402
from .errors import RequestError  # noqa: E402
from .gallery_access import GalleryAccess  # noqa: E402
from .limits import Limits  # noqa: E402
from .recognizer import Recognizer  # noqa: E402
from .server import serve, serve_album  # noqa: E402

__all__ = [
    "AlbumAccess",
    "Batcher",
    "BearerKeys",
    "GalleryAccess",
    "Limits",
    "Recognizer",
    "RequestError",
    "create_album_app",
    "create_app",
    "serve",
    "serve_album",
]
