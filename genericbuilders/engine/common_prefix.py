"""The prefix that all rows of a step share, looked for where a group's back end attends over it once."""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.adapter import Group
from genericbuilders.cache import KVCacheCoordinator

__all__ = ["CommonPrefixes"]


class CommonPrefixes:
    """How many tokens all rows of a step share in each group, as its back end wants to know.

    A group whose back end has no use for it is never looked at; nor is any, where no row could have found another's
    blocks, where too few rows come, or where the shortest has too few tokens in the cache.

    Args:
        groups: in the order of the coordinator's managers.
        coordinator: knows each request's blocks.
    """

    def __init__(self, groups: Sequence[Group], coordinator: KVCacheCoordinator) -> None:
        self._coordinator = coordinator
        rules = [group.common_prefix_rule() for group in groups]
        self._rules = rules if coordinator.enable_prefix_caching else [None] * len(rules)

    def find(self, request_ids: Sequence[str], num_computed_tokens: int) -> list[int]:
        """For each group, the tokens of whole blocks at the front that all rows share; 0 where it does not pay.

        Args:
            request_ids: the rows'.
            num_computed_tokens: tokens that every row has in the cache from earlier steps, so that no row's new tokens
                lie in the prefix.
        """
        found: list[int] = []
        for rule, manager in zip(self._rules, self._coordinator.managers, strict=True):
            shared = 0
            if rule is not None and rule.met(len(request_ids), num_computed_tokens):
                blocks = manager.num_common_prefix_blocks(request_ids)
                shared = min(blocks, num_computed_tokens // manager.block_size) * manager.block_size
                shared = shared if rule.met(len(request_ids), shared) else 0
            found.append(shared)
        return found
