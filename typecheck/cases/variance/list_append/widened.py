"""A function that adds a drafter of any back end is given the list that the runner reads latent vectors of.

At run time: AttributeError: 'FullBuilder' object has no attribute 'latent_size'
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, MLA_SPEC
from typecheck.designs.widened.attention import FullBuilder, MLABuilder
from typecheck.designs.widened.core import AnyBuilder


def add_drafter(builders: list[AnyBuilder]) -> None:
    builders.append(FullBuilder(FULL_SPEC, ["drafter"], CONFIG, CPU))


def run() -> object:
    latents = [MLABuilder(MLA_SPEC, ["mla"], CONFIG, CPU)]
    add_drafter(latents)  # E
    return [builder.latent_size() for builder in latents]
