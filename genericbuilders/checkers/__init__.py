"""Type checkers, all run and read in one way.

Each is a class of its own (`Checker`) that knows how it is called and what its output means. `check` and `check_all`
run them as subprocesses; none of them is a dependency, and what is not installed is reported as that.
"""

from __future__ import annotations

from genericbuilders.checkers.catalogue import CHECKERS
from genericbuilders.checkers.checker import Checker, Level, NotFoundError, OverrideError, Request
from genericbuilders.checkers.diagnostic import Diagnostic, Severity
from genericbuilders.checkers.run import Run, Status, check, check_all

__all__ = [
    "CHECKERS",
    "Checker",
    "Diagnostic",
    "Level",
    "NotFoundError",
    "OverrideError",
    "Request",
    "Run",
    "Severity",
    "Status",
    "check",
    "check_all",
]
