"""Small random models whose decoder attends over an encoder's output: BART and Whisper, and what transformers says."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from tiny_models import IdTokenizer
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, WhisperConfig, WhisperForConditionalGeneration

from genericbuilders.adapter import AttentionAdapter
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.setup import EngineOptions, build_engine
from genericbuilders.model import LoadedModel, Model
from genericbuilders.request_encoder import EncoderFeatures, EncoderInput, EncoderTokens
from genericbuilders_transformers.encoder_decoder import BartServed, WhisperServed

__all__ = [
    "ENCODER_DECODERS",
    "MAX_ENCODER_LEN",
    "MODEL_LEN",
    "NUM_FRAMES",
    "NUM_MEL_BINS",
    "START",
    "VOCAB_SIZE",
    "EncoderDecoder",
    "cross_engine",
    "encoder_input",
    "greedy_alone",
    "logits_alone",
    "tiny_bart",
    "tiny_encoder_decoder",
    "tiny_whisper",
]

EncoderDecoder = BartForConditionalGeneration | WhisperForConditionalGeneration
ENCODER_DECODERS = ("bart", "whisper")
VOCAB_SIZE = 97
MODEL_LEN = 48
START = 2
MAX_ENCODER_LEN = {"bart": MODEL_LEN, "whisper": 11}
NUM_MEL_BINS = 6
NUM_FRAMES = 22


def tiny_bart(seed: int = 0) -> BartForConditionalGeneration:
    """Two decoder layers of 3 heads of 8, an encoder of one with other heads; 97 tokens, 48 positions."""
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    hf = BartForConditionalGeneration(
        BartConfig(
            vocab_size=VOCAB_SIZE,
            d_model=24,
            encoder_layers=1,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=3,
            encoder_ffn_dim=40,
            decoder_ffn_dim=40,
            max_position_embeddings=MODEL_LEN,
            scale_embedding=True,
            decoder_start_token_id=START,
        )
    )
    with torch.no_grad():
        hf.final_logits_bias.normal_(0.0, 0.02)
    _enlarge(hf, 0.15)
    return hf.eval()


def tiny_whisper(seed: int = 0) -> WhisperForConditionalGeneration:
    """Two decoder layers of 3 heads of 8; 22 frames of 6 mel bins become 11 encoder tokens."""
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    hf = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=VOCAB_SIZE,
            d_model=24,
            encoder_layers=1,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=3,
            encoder_ffn_dim=40,
            decoder_ffn_dim=40,
            num_mel_bins=NUM_MEL_BINS,
            max_source_positions=NUM_FRAMES // 2,
            max_target_positions=MODEL_LEN,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=3,
            decoder_start_token_id=START,
            begin_suppress_tokens=[],
        )
    )
    _enlarge(hf, 0.3)
    return hf.eval()


def _enlarge(model: nn.Module, attention: float) -> None:
    """Weights that keep the logits apart, so that no token is decided by rounding, and outputs from repeating one."""
    scales = {"shared": 0.2, "embed_tokens": 0.2, "embed_positions": 1.5, "decoder.layers": attention}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = next((scales[part] for part in scales if part in name), 0.5)
            if name.endswith("norm.weight"):
                # Tied embeddings would otherwise answer each token with itself.
                parameter.mul_(torch.randn(parameter.shape).sign())
            elif parameter.dim() > 1:
                parameter.normal_(0.0, 0.8 if ".fc" in name and "decoder" in name else scale)
            else:
                parameter.normal_(0.0, 0.1)


def tiny_encoder_decoder(family: str, seed: int = 0) -> EncoderDecoder:
    return tiny_bart(seed) if family == "bart" else tiny_whisper(seed)


def encoder_input(family: str, rng: random.Random, length: int | None = None) -> EncoderInput:
    """Something for the family's encoder to read, of ``length`` tokens if that is for a request to choose."""
    if family == "bart":
        count = rng.randint(1, MODEL_LEN) if length is None else length
        return EncoderTokens(tuple(rng.randrange(VOCAB_SIZE) for _ in range(count)))
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    return EncoderFeatures(torch.randn(NUM_MEL_BINS, NUM_FRAMES, generator=generator))


@torch.inference_mode()
def logits_alone(hf: EncoderDecoder, tokens: Sequence[int], given: EncoderInput) -> Tensor:
    """transformers' own logits, ``[num_tokens, vocab_size]``, of a decoder fed ``tokens``, in one pass without a cache."""
    decoder_input_ids = torch.tensor([list(tokens)])
    if isinstance(hf, BartForConditionalGeneration):
        assert isinstance(given, EncoderTokens)
        out = hf(torch.tensor([given.token_ids]), decoder_input_ids=decoder_input_ids, use_cache=False)
    else:
        assert isinstance(given, EncoderFeatures)
        out = hf(given.features[None], decoder_input_ids=decoder_input_ids, use_cache=False)
    return out.logits[0]


def greedy_alone(hf: EncoderDecoder, prompt: Sequence[int], given: EncoderInput, count: int) -> list[int]:
    """transformers' own greedy continuation, each token from one pass over the whole sequence."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_alone(hf, tokens, given)[-1].argmax()))
    return tokens[len(prompt) :]


def cross_engine(hf: EncoderDecoder, options: EngineOptions, attention: AttentionAdapter | None = None) -> Engine:
    """An engine around ``hf``, which is changed by it."""
    served: Model
    if isinstance(hf, BartForConditionalGeneration):
        served = BartServed(hf, block_size=options.block_size, attention=attention)
    else:
        served = WhisperServed(hf, block_size=options.block_size, attention=attention)
    return build_engine(LoadedModel(served, IdTokenizer()), options)
