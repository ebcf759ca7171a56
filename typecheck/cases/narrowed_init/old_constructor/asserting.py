"""A plug-in still has the constructor of the previous engine, which took a single input builder.

At run time: TypeError: InputTreeBuilder.__init__() takes 2 positional arguments but 5 were given
"""

from __future__ import annotations

from typing_extensions import override

from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.plugin import PagedTreeBackend, PagedTreeBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


class InputTreeBuilder(PagedTreeBuilder):
    """Out of tree, from the engine whose builders were made from a model input."""

    def __init__(self, input_builder: object) -> None:  # E
        super().__init__(FULL_SPEC, [], CONFIG, CPU)
        self.input_builder: object = input_builder


class InputTreeBackend(PagedTreeBackend):
    """Out of tree."""

    @staticmethod
    @override
    def get_builder_cls() -> type[InputTreeBuilder]:
        return InputTreeBuilder


def run() -> object:
    return place(InputTreeBackend, FULL_SPEC).build(two_requests())
