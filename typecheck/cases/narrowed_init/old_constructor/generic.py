"""A plug-in still has the constructor of the previous engine, which took a single input builder.

At run time: SignatureMismatchError: InputTreeBuilder.__init__
"""

from __future__ import annotations

from typing import Final

from typecheck.designs.generic.core import BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.plugin import PagedTreeBuilder
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl


class InputTreeBuilder(PagedTreeBuilder):
    """Out of tree, from the engine whose builders were made from a model input."""

    def __init__(self, input_builder: object) -> None:  # E
        super().__init__(FULL_SPEC, [], CONFIG, CPU)
        self.input_builder: object = input_builder


INPUT_TREE: Final = BackendAdapter("input_tree", InputTreeBuilder, PagedTreeImpl)


def run() -> object:
    group, _ = place(INPUT_TREE, FULL_SPEC)
    return Runner([group]).build(two_requests())
