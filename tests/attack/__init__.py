"""Attacks on the promises of ``SECURITY.md`` and ``docs/reliability.md``.

``make attack`` (``python -m tests.attack``) runs them with fixed seeds and counts the failures.
"""
