"""What a merge of specs raises."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["SpecMergeError"]


class SpecMergeError(ValueError):
    """Specs that cannot become one without losing something.

    Attributes:
        field_names: the fields on which the specs disagree, in the order of declaration; empty if their types differ.
    """

    def __init__(self, message: str, field_names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.field_names: tuple[str, ...] = tuple(field_names)
