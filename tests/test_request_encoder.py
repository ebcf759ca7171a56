"""What stands for an encoder input: equal for equal ones only, whatever their kind, shape or dtype."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.request_encoder import EncoderFeatures, EncoderTokens


@given(one=st.lists(st.integers(0, 3), max_size=4), other=st.lists(st.integers(0, 3), max_size=4))
def test_tokens_share_a_digest_only_if_they_are_equal(one: list[int], other: list[int]) -> None:
    assert (EncoderTokens(tuple(one)).digest() == EncoderTokens(tuple(other)).digest()) is (one == other)


def test_features_share_a_digest_only_if_values_shape_and_dtype_are_equal() -> None:
    features = torch.arange(6.0)
    variants = [
        features.view(2, 3),
        features.view(3, 2),
        features.view(2, 3) + 1,
        features.view(2, 3).double(),
        features.view(2, 3).bfloat16(),
        features.view(2, 3).view(torch.int32),
        torch.zeros(2, 0),
        torch.zeros(0, 2),
    ]
    digests = [EncoderFeatures(each).digest() for each in variants]
    assert len(set(digests)) == len(digests)
    assert EncoderFeatures(features.view(3, 2).T.contiguous().T).digest() == digests[1]
    assert EncoderTokens(()).digest() not in digests


def test_features_do_not_change_with_what_was_given() -> None:
    given_features = torch.ones(2, 3, requires_grad=True)
    kept = EncoderFeatures(given_features)
    before = kept.digest()
    with torch.no_grad():
        given_features.zero_()
    assert kept.digest() == before
    assert not kept.features.requires_grad
