"""The implementation stands in the builder's place as well.

At run time: UnresolvedArgumentError: GDNImpl does not derive from AttentionMetadataBuilder
"""

from __future__ import annotations

from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import GDNImpl


def run() -> object:
    delta = BackendAdapter("delta", GDNImpl, GDNImpl)  # E
    group, _ = place(delta, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return step
