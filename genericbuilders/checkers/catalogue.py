"""The checkers that there are."""

from __future__ import annotations

from genericbuilders.checkers.checker import Checker
from genericbuilders.checkers.mypy import Mypy
from genericbuilders.checkers.pyright import BasedPyright, Pyright

__all__ = ["CHECKERS"]

CHECKERS: tuple[Checker, ...] = (Mypy(), Pyright(), BasedPyright())
