"""How a command ends: its exit codes, and errors as one line instead of a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import TextIO

import typer

__all__ = ["ExitCode", "UserError", "discard", "memory_errors", "reported", "tell"]


class ExitCode(IntEnum):
    """What a command's exit code says."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class UserError(Exception):
    """Something that the user can mend; the message says what and how.

    Attributes:
        exit_code: what the command ends with.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def tell(message: str, kind: str | None = None, color: str = "red") -> None:
    """Write a line to stderr, with ``kind`` in front, such as ``error``."""
    front = "" if kind is None else typer.style(f"{kind}:", fg=color, bold=True) + " "
    typer.echo(f"{front}{message}", err=True)


@contextmanager
def reported() -> Generator[None, None, None]:
    """Turn errors that the user can mend into one line on stderr and an exit code; let all others through."""
    try:
        yield
    except UserError as error:
        tell(str(error), "error")
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has seen enough. Nothing may be written any more, not even when Python ends.
        discard(sys.stdout)
        discard(sys.stderr)
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
    except (ValueError, TypeError, LookupError, ImportError) as error:
        if not isinstance(error, _library_errors()):
            raise
        tell(str(error), "error")
        raise typer.Exit(ExitCode.BAD_INPUT) from None


@contextmanager
def memory_errors(what: str, mend: str) -> Generator[None, None, None]:
    """Name ``what`` did not fit into memory, and how to ``mend`` it."""
    import torch

    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _no_memory(what, mend, error) from None
    except RuntimeError as error:
        # torch's allocator for CPUs has no exception of its own.
        if not any(word in str(error) for word in ("allocate memory", "not enough memory", "calculation overflow")):
            raise
        raise _no_memory(what, mend, error) from None


def discard(stream: TextIO | None) -> None:
    """Let what is still written to ``stream`` vanish. A stream that was closed from the start is ``None``."""
    if stream is None:
        return
    with suppress(OSError, io.UnsupportedOperation):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


def _no_memory(what: str, mend: str, error: BaseException) -> UserError:
    told = str(error).strip().partition("\n")[0]
    return UserError(f"not enough memory for {what} ({told or type(error).__name__}); {mend}")


def _library_errors() -> tuple[type[Exception], ...]:
    """The library's errors whose message names cause and mend. Imported here: ``--help`` must not wait for torch."""
    from genericbuilders.adapter import BackendUnavailableError, BindError
    from genericbuilders.cache import NoManagerError
    from genericbuilders.calls import SignatureMismatchError
    from genericbuilders.engine.request import RequestError
    from genericbuilders.model import LoadError
    from genericbuilders.registry import DuplicateAdapterError, NoBackendError

    return (
        BackendUnavailableError,
        BindError,
        DuplicateAdapterError,
        LoadError,
        NoBackendError,
        NoManagerError,
        RequestError,
        SignatureMismatchError,
    )
