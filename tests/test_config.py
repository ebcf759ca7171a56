"""What a layer's settings refuse, by name and number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from genericbuilders.config import AttentionLayerConfig, CommonPrefixRule, EngineConfig, check_reach


def layer(
    sliding_window: int | None = None,
    attention_chunk_size: int | None = None,
    logits_soft_cap: float | None = None,
    alibi_slopes: tuple[float, ...] | None = None,
    sinks: torch.Tensor | None = None,
) -> AttentionLayerConfig:
    return AttentionLayerConfig(
        num_heads=4,
        num_kv_heads=2,
        head_size=8,
        scale=1.0,
        sliding_window=sliding_window,
        attention_chunk_size=attention_chunk_size,
        logits_soft_cap=logits_soft_cap,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
    )


REFUSED: list[tuple[Callable[[], AttentionLayerConfig], str]] = [
    (lambda: layer(sliding_window=0), "sliding_window is 0; it must be at least 1 token"),
    (lambda: layer(attention_chunk_size=-3), "attention_chunk_size is -3; it must be at least 1 token"),
    (
        lambda: layer(sliding_window=4, attention_chunk_size=8),
        "sliding_window 4 and attention_chunk_size 8 are both set",
    ),
    (lambda: layer(logits_soft_cap=0.0), r"logits_soft_cap is 0\.0; it must be positive"),
    (lambda: layer(alibi_slopes=(0.5, 0.25)), "alibi_slopes has 2 entries for 4 heads"),
    (lambda: layer(sinks=torch.zeros(3)), "sinks has 3 entries for 4 heads"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED)
def test_what_a_layer_cannot_be_is_refused(make: Callable[[], AttentionLayerConfig], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_sinks_are_weights_and_no_part_of_a_layer_s_identity() -> None:
    assert layer(sinks=torch.zeros(4)) == layer(sinks=torch.ones(4)) == layer()
    assert hash(layer(sinks=torch.zeros(4))) == hash(layer())
    assert layer(sliding_window=4) != layer()


@pytest.mark.parametrize(
    ("sliding_window", "attention_chunk_size", "says"),
    [
        (8, None, "layer 'a' sees a window of 4 tokens, but its cache is kept for a window of 8 tokens"),
        (None, 4, "layer 'a' sees a window of 4 tokens, but its cache is kept for chunks of 4 tokens"),
        (None, None, "layer 'a' sees a window of 4 tokens, but its cache is kept for all tokens"),
        (4, None, "layer 'b' sees all tokens, but its cache is kept for a window of 4 tokens"),
    ],
)
def test_a_cache_kept_for_another_reach_is_refused(
    sliding_window: int | None, attention_chunk_size: int | None, says: str
) -> None:
    config = EngineConfig(max_model_len=8, layers={"a": layer(sliding_window=4), "b": layer()})
    check_reach(config, ["a"], 4, None)
    with pytest.raises(ValueError, match=says):
        check_reach(config, ["a", "b"], sliding_window, attention_chunk_size)


def test_a_rule_for_common_prefixes() -> None:
    rule = CommonPrefixRule(4, 100)
    assert [rule.met(rows, tokens) for rows, tokens in [(4, 100), (3, 100), (4, 99)]] == [True, False, False]
    assert not CommonPrefixRule.never().met(10**6, 10**9)
    with pytest.raises(ValueError, match="min_rows is 1; it must be at least 2"):
        CommonPrefixRule(1, 100)
    with pytest.raises(ValueError, match="min_tokens is 0; it must be at least 1"):
        CommonPrefixRule(2, 0)
