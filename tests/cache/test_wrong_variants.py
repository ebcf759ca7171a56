"""The tests of cases 08, 09, 10 and 12 fail where the fault is put back in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor

from genericbuilders.adapter import Layer
from genericbuilders.cache import MambaManager, plan, tensors
from genericbuilders.cache.plan import CachePlan, GroupPlan, PoolStrategy
from genericbuilders.config import KVCacheLayout
from tests.cache import test_mamba_manager, test_plan, test_tensors


def one_page_size_for_all(layer: Layer, cache: Tensor) -> Tensor:
    """Every group's pages are taken for the first one's, of 256 bytes."""
    return torch.empty(0, dtype=torch.int8).set_(cache.untyped_storage())[: cache.nbytes].view(-1, 256)


def divisible_pages_only(groups: Sequence[GroupPlan]) -> CachePlan:
    largest = max(group.page_bytes for group in groups)
    for group in groups:
        if largest % group.page_bytes:
            raise ValueError(f"{largest} is not divisible by {group.page_bytes}")
    return CachePlan(tuple(groups), PoolStrategy.OWN_POOLS, 0)


def cut_at_the_attention_group_s_block(manager: MambaManager, num_computed_tokens: int, wanted: int) -> int:
    end = (num_computed_tokens + wanted) // 816 * 816
    return end - num_computed_tokens if end > num_computed_tokens else wanted


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        (
            (tensors, "_by_block", one_page_size_for_all),
            partial(
                test_tensors.test_case_08_each_group_is_zeroed_and_copied_by_its_own_page_size,
                KVCacheLayout.BLOCK_FIRST,
            ),
        ),
        (
            (plan, "_own_pools", divisible_pages_only),
            test_plan.test_case_09_pages_of_states_and_quantised_attention_need_no_common_divisor,
        ),
        ((test_plan, "agree", list), test_plan.test_case_10_stages_plan_by_their_own_layers_and_agree),
        (
            (MambaManager, "max_piece", cut_at_the_attention_group_s_block),
            test_mamba_manager.test_case_12_pieces_end_at_multiples_of_the_state_groups_own_block,
        ),
    ],
    ids=["08", "09", "10", "12"],
)
def test_each_check_fails_for_a_wrong_variant(
    spoil: tuple[object, str, object], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    monkeypatch.setattr(*spoil)
    with pytest.raises((AssertionError, ValueError)):
        check()
