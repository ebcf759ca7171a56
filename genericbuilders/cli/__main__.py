"""``python -m genericbuilders.cli`` is ``genericbuilders``."""

from __future__ import annotations

from genericbuilders.cli import main

main()
