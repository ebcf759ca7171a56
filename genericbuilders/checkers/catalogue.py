"""The checkers that there are."""

from __future__ import annotations

from genericbuilders.checkers.checker import Checker
from genericbuilders.checkers.mypy import Mypy
from genericbuilders.checkers.pyrefly import Pyrefly
from genericbuilders.checkers.pyright import BasedPyright, Pyright
from genericbuilders.checkers.ty import Ty
from genericbuilders.checkers.zuban import Zuban

__all__ = ["CHECKERS"]

CHECKERS: tuple[Checker, ...] = (Mypy(), Pyright(), BasedPyright(), Pyrefly(), Ty(), Zuban())
