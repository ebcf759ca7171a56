"""Machine output read field by field: what is not as expected is an error that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from typing_extensions import TypeIs

from genericbuilders.checkers.checker import OutputError

__all__ = ["Record", "read_json", "records"]

T = TypeVar("T")

EXCERPT = 120


@dataclass(frozen=True)
class Record:
    """One JSON object; ``where`` is its place in the output."""

    values: Mapping[object, object]
    where: str

    def text(self, key: str) -> str:
        """A string."""
        value = self._get(key)
        if not isinstance(value, str):
            raise self._mismatch(key, value, "a string")
        return value

    def optional_text(self, key: str) -> str:
        """A string; empty where the field is null or not there."""
        return "" if self.values.get(key) is None else self.text(key)

    def whole(self, key: str) -> int:
        """An integer."""
        value = self._get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._mismatch(key, value, "an integer")
        return value

    def number(self, key: str) -> float:
        """A number."""
        value = self._get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._mismatch(key, value, "a number")
        return value

    def choice(self, key: str, choices: Mapping[str, T]) -> T:
        """What one of several strings stands for."""
        value = self.text(key)
        if value not in choices:
            raise OutputError(f"{self.where}.{key} is {value!r:.{EXCERPT}}, not one of {', '.join(choices)}")
        return choices[value]

    def record(self, key: str) -> Record:
        """An object."""
        return _record(self._get(key), f"{self.where}.{key}")

    def records(self, key: str) -> list[Record]:
        """A list of objects."""
        return records(self._get(key), f"{self.where}.{key}")

    def _get(self, key: str) -> object:
        if key not in self.values:
            raise OutputError(f"{self.where} has no field {key!r}")
        return self.values[key]

    def _mismatch(self, key: str, value: object, wanted: str) -> OutputError:
        return OutputError(f"{self.where}.{key} is {value!r:.{EXCERPT}}, not {wanted}")


def read_json(text: str, where: str = "output") -> Record:
    """A text that is one JSON object.

    Raises:
        OutputError: it is not.
    """
    return _record(_load(text, where), where)


def records(source: object, where: str = "output") -> list[Record]:
    """A list of objects, or the text of one.

    Raises:
        OutputError: it is not.
    """
    value = _load(source, where) if isinstance(source, str) else source
    if not _is_list(value):
        raise OutputError(f"{where} is {value!r:.{EXCERPT}}, not a list")
    return [_record(item, f"{where}[{index}]") for index, item in enumerate(value)]


def _load(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise OutputError(f"{where} is not JSON ({error}): {text.strip()[:EXCERPT]!r}") from None
    return value


def _record(value: object, where: str) -> Record:
    if not _is_object(value):
        raise OutputError(f"{where} is {value!r:.{EXCERPT}}, not an object")
    return Record(value, where)


def _is_list(value: object) -> TypeIs[list[object]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeIs[dict[object, object]]:
    return isinstance(value, dict)
