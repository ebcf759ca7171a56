"""TOML read with types, where what is not as it must be is an error that names the key; and written."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import TypeIs

__all__ = ["Table", "is_table", "load", "quoted", "replace", "table", "tables", "text", "texts"]

Table = Mapping[str, object]


def load(path: Path) -> Table:
    """The table in ``path``.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no TOML.
    """
    return tomllib.loads(path.read_text(encoding="utf-8"))


def text(source: Table, key: str) -> str:
    """A text that is not empty.

    Raises:
        ValueError: it is something else, or missing.
    """
    value = source.get(key)
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError(f"{key} must be a text")


def table(source: Table, key: str) -> Table:
    """A table; an empty one where it is missing.

    Raises:
        ValueError: it is something else.
    """
    value = source.get(key)
    if value is None:
        return {}
    if is_table(value):
        return value
    raise ValueError(f"{key} must be a table")


def texts(source: Table, key: str) -> tuple[str, ...]:
    """A list of texts, at least one.

    Raises:
        ValueError: it is something else, or missing.
    """
    values = _list(source, key)
    found = tuple(value for value in values if isinstance(value, str))
    if found and len(found) == len(values):
        return found
    raise ValueError(f"{key} must be a list of texts")


def tables(source: Table, key: str) -> tuple[Table, ...]:
    """A list of tables.

    Raises:
        ValueError: it is something else, or missing.
    """
    values = _list(source, key)
    found = tuple(value for value in values if is_table(value))
    if len(found) == len(values):
        return found
    raise ValueError(f"{key} must be a list of tables")


def is_table(value: object) -> TypeIs[Table]:
    """Whether ``value`` is a table: all keys of a TOML table are texts."""
    return isinstance(value, Mapping)


def quoted(value: str) -> str:
    """A text, or a key, as TOML has it."""
    return json.dumps(value, ensure_ascii=False)


def replace(path: Path, content: str) -> None:
    """Write a file, in one step where one is there.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(content, encoding="utf-8")
    os.replace(partial, path)


def _list(source: Table, key: str) -> list[object]:
    value = source.get(key)
    if _is_list(value):
        return value
    raise ValueError(f"{key} must be a list")


def _is_list(value: object) -> TypeIs[list[object]]:
    return isinstance(value, list)
