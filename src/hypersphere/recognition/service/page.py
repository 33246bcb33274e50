"""The HTML pages of the service. A content security policy allows only their own script and style."""

import base64
import hashlib
import re
from importlib import resources


def load_page(name: str = "page.html") -> tuple[str, dict[str, str]]:
    """Return a page and its headers.

    The content security policy contains the hashes of the page's script and style. Nothing else runs, nothing is loaded
    from other sites, and no other page can frame it.

    Args:
        name: The file name in this package.

    >>> content, headers = load_page()
    >>> content.startswith("<!doctype html>"), "default-src 'none'" in headers["Content-Security-Policy"]
    (True, True)
    """
    content = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    script, style = (_hash(re.findall(rf"<{tag}>(.*?)</{tag}>", content, re.S)) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src blob: data:; media-src blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return content, {"Content-Security-Policy": policy, "Permissions-Policy": "camera=(self), microphone=(self)"}


def _hash(parts: list[str]) -> str:
    assert len(parts) == 1
    return f"'sha256-{base64.b64encode(hashlib.sha256(parts[0].encode()).digest()).decode()}'"
