"""A small process between the library and a checker, run as a script: it measures, and dies with its parent.

Memory is measured here because a process starts with the peak of the one that it was forked from. From a parent that
has loaded torch, every checker would seem to need that much.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Run a command and write one JSON object about it.

    Args:
        arguments: the descriptor to write to; one that is closed when the parent is gone; the command.
    """
    result, lifeline = int(arguments[0]), int(arguments[1])
    os.set_inheritable(result, False)
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    os.write(result, json.dumps(_run(arguments[2:])).encode())


def _run(command: list[str]) -> dict[str, float | int | str]:
    began = time.monotonic()
    try:
        pid = os.posix_spawn(command[0], command, os.environ)
    except OSError as error:
        return {"error": f"{command[0]} cannot be started: {error.strerror}"}
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    # Of the biggest process among the command and those of its children that it waited for. macOS counts in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    code = os.waitstatus_to_exitcode(status)
    return {"exit_code": code, "seconds": seconds, "peak_bytes": usage.ru_maxrss * unit}


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
