"""The author of a back end forgets to give it the name that configurations call it by.

At run time: TypeError: BackendAdapter.__init__() missing 1 required positional argument: 'name'
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


def ring_adapter() -> BackendAdapter[FullMetadata, AttentionSpec]:
    return BackendAdapter(builder=FullBuilder, impl=FullImpl)  # E


def run() -> object:
    group, _ = place(ring_adapter(), FULL_SPEC)
    return group.layer_names
