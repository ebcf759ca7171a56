"""A function that adds a drafter of any back end is given the list that the runner reads latent vectors of.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'cache_dtype_str'
"""

from __future__ import annotations

from typecheck.designs.covariant.attention import FULL, MLA
from typecheck.designs.covariant.core import Group
from typecheck.designs.covariant.layers import place
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC


def add_drafter(groups: list[Group]) -> None:
    drafter, _ = place(FULL, FULL_SPEC)
    groups.append(drafter)


def run() -> object:
    mla, _ = place(MLA, MLA_SPEC)
    latents = [mla]
    add_drafter(latents)  # E
    return [group.spec.cache_dtype_str for group in latents]
