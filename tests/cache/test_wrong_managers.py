"""The tests of managers that give blocks back, share some, or take none fail where a fault is put in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from typing_extensions import override

from genericbuilders.cache import (
    BlockPool,
    ChunkedLocalManager,
    CrossAttentionManager,
    EncoderOnlyManager,
    FullAttentionManager,
    GroupManager,
    RequestSize,
    RSWAManager,
    SinkManager,
    SlidingWindowManager,
)
from tests.cache import test_chunk_manager, test_shared_columns, test_window_manager

window_8 = partial(test_window_manager.test_window_8_sees_the_last_8_positions_at_every_step, 2, caching=True)
case_27 = partial(test_window_manager.test_case_27_latent_windows_keep_their_fields, bounded_replay=True)
case_25 = partial(test_shared_columns.test_case_25_the_full_layer_keeps_its_blocks_in_both_orders, full_first=False)
case_26 = test_shared_columns.test_case_26_sinks_are_kept_beside_full_attention_and_beside_other_sinks


def a_window_without_its_first_token(manager: SlidingWindowManager, num_computed_tokens: int) -> int:
    return max(0, num_computed_tokens + 2 - manager.sliding_window)


def a_window_and_a_token_before_it(manager: SlidingWindowManager, num_computed_tokens: int) -> int:
    return max(0, num_computed_tokens - manager.sliding_window)


def a_window_alone(manager: SlidingWindowManager, num_computed_tokens: int) -> int:
    return max(0, num_computed_tokens + 1 - manager.sliding_window)


def found_again_in_any_case(manager: GroupManager) -> bool:
    return True


def the_chunk_of_the_token_before(manager: ChunkedLocalManager, num_computed_tokens: int) -> int:
    return max(0, num_computed_tokens - 1) // manager.attention_chunk_size * manager.attention_chunk_size


def the_whole_prefix(manager: GroupManager, num_columns: int) -> int:
    return 0


class RecyclingManager(FullAttentionManager):
    """A full layer that shares its manager with a reference window of 2 behind a prompt of two blocks."""

    @override
    def give_back(self, request_id: str, num_computed_tokens: int) -> None:
        self._let_go(request_id, 2, (num_computed_tokens - 1) // self.block_size)


def a_window_of_the_prompt_too(manager: RSWAManager, request_id: str) -> int:
    return 0


def nothing_kept_to_the_end(manager: RSWAManager, request_id: str, size: RequestSize) -> None:
    """The manager is not told where the prompt ends."""


def the_same_to_every_request(manager: RSWAManager, size: RequestSize) -> int | None:
    return None


def the_sinks_dropped(manager: SinkManager, request_id: str) -> Sequence[int]:
    return GroupManager.blocks_of(manager, request_id)


def blocks_for_requests(pool: BlockPool, num_blocks: int) -> list[int]:
    return pool.get_new_blocks(num_blocks)


def by_the_request_s_own_tokens(
    manager: GroupManager, request_id: str, num_tokens: int, hit: Sequence[int] = ()
) -> int:
    return GroupManager.num_new_blocks_needed(manager, request_id, num_tokens, hit)


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        ((SlidingWindowManager, "first_needed_token", a_window_without_its_first_token), window_8),
        ((SlidingWindowManager, "first_needed_token", a_window_and_a_token_before_it), window_8),
        (
            (SlidingWindowManager, "first_needed_token", a_window_alone),
            test_window_manager.test_extra_retained_tokens_are_kept_and_found,
        ),
        (
            (SlidingWindowManager, "first_needed_column", the_whole_prefix),
            test_window_manager.test_the_longest_hit_is_a_run_at_the_end_that_covers_the_window,
        ),
        ((SlidingWindowManager, "finds_prefixes", property(found_again_in_any_case)), case_27),
        (
            (ChunkedLocalManager, "first_needed_token", the_chunk_of_the_token_before),
            test_chunk_manager.test_blocks_before_the_current_chunk_are_given_back,
        ),
        (
            (ChunkedLocalManager, "first_needed_column", the_whole_prefix),
            test_chunk_manager.test_a_hit_needs_only_the_chunk_that_the_next_token_lies_in,
        ),
        ((FullAttentionManager, "give_back", RecyclingManager.give_back), case_25),
        ((RSWAManager, "begin", nothing_kept_to_the_end), case_25),
        (
            (RSWAManager, "num_kept_columns", a_window_of_the_prompt_too),
            test_shared_columns.test_a_reference_window_keeps_the_prompt_and_the_last_generated_tokens,
        ),
        (
            (RSWAManager, "max_shared_tokens", the_same_to_every_request),
            test_shared_columns.test_what_was_generated_is_never_another_s_prompt,
        ),
        ((SinkManager, "blocks_of", the_sinks_dropped), case_26),
        ((BlockPool, "reserve", blocks_for_requests), case_26),
        (
            (CrossAttentionManager, "num_new_blocks_needed", by_the_request_s_own_tokens),
            test_shared_columns.test_an_encoder_s_blocks_are_taken_once,
        ),
        (
            (EncoderOnlyManager, "num_new_blocks_needed", by_the_request_s_own_tokens),
            test_shared_columns.test_layers_without_a_cache_have_no_columns,
        ),
    ],
)
def test_each_check_fails_for_a_wrong_variant(
    spoil: tuple[object, str, object], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    monkeypatch.setattr(*spoil)
    with pytest.raises((AssertionError, ValueError)):
        check()
