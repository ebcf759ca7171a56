"""vLLM's builder classes: facts about version 0.32.0, for scans that do not hold vLLM itself.

Made by `Project` from the installed tree; ``tests/peer/test_known_builders.py`` makes it again and compares.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["KNOWN_ANNOTATED", "KNOWN_BUILDERS", "OLD_ROOTS", "OUR_ROOTS", "SPEC_PARENTS", "VLLM_ROOTS"]

VLLM_ROOTS = frozenset(
    {
        "vllm.v1.attention.backend.AttentionMetadataBuilder",
        # Until 0.13.
        "vllm.v1.attention.backends.utils.AttentionMetadataBuilder",
    }
)
"""Where the base of all builders is, and has been."""

OLD_ROOTS = frozenset(
    {
        "vllm.attention.AttentionMetadataBuilder",
        "vllm.attention.backends.abstract.AttentionMetadataBuilder",
        "vllm.attention.backends.utils.CommonMetadataBuilder",
    }
)
"""The bases of the engine before v1, whose builders take an ``input_builder``."""

SPEC_PARENTS: Mapping[str, str] = {
    "AttentionSpec": "KVCacheSpec",
    "ChunkedLocalAttentionSpec": "AttentionSpec",
    "CrossAttentionSpec": "AttentionSpec",
    "EncoderOnlyAttentionSpec": "AttentionSpec",
    "FullAttentionSpec": "AttentionSpec",
    "MLAAttentionSpec": "FullAttentionSpec",
    "MambaSpec": "KVCacheSpec",
    "SinkFullAttentionSpec": "FullAttentionSpec",
    "SlidingWindowMLASpec": "SlidingWindowSpec",
    "SlidingWindowSpec": "AttentionSpec",
    "UniformTypeKVCacheSpecs": "KVCacheSpec",
}
"""Each of vLLM's specs, and the one that it derives from."""

OUR_ROOTS = frozenset(
    {
        "genericbuilders.backends.paged.PagedMetadataBuilder",
        "genericbuilders.backends.paged.PlainCacheBuilder",
        "genericbuilders.builder.AttentionMetadataBuilder",
        "genericbuilders_vllm.base.AttentionMetadataBuilder",
    }
)
"""The bases with two type parameters: for this library's own engine, and for builders that run inside vLLM."""

KNOWN_BUILDERS: Mapping[str, str] = {
    "vllm.model_executor.layers.attention.mla_attention.MLACommonMetadataBuilder": "AttentionSpec",
    "vllm.model_executor.layers.attention.sparse_mla_attention.SparseMLACommonMetadataBuilder": "AttentionSpec",
    "vllm.model_executor.models.extract_hidden_states.CacheOnlyAttentionMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v4.amd.rocm.DeepseekV4ROCMAiterMLASparseMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v4.amd.rocm.DeepseekV4ROCMAiterSparseSWAMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v4.compressor.CompressorMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v4.cpu.cpu_mla.DeepseekV4CPUFlashMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v4.cpu.cpu_mla.DeepseekV4CPUIndexerMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v4.cpu.cpu_mla.DeepseekV4CPUSparseSWAMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v4.nvidia.flashinfer_sparse.DeepseekV4FlashInferSparseMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v4.nvidia.flashinfer_sparse.DeepseekSparseSWAFlashInferMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v4.nvidia.flashmla.DeepseekSparseSWAFlashMLAMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v4.sparse_mla.DeepseekV4SparseMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v4.sparse_mla.DeepseekV4FlashMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v41.amd.rocm.DeepseekV4ROCMAiterSparseSWAMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v41.compressor.CompressorMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v41.nvidia.flashinfer_sparse.DeepseekV4FlashInferSparseMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v41.nvidia.flashinfer_sparse.DeepseekSparseSWAFlashInferMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v41.nvidia.flashmla.DeepseekSparseSWAFlashMLAMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v41.sparse_mla.DeepseekV41SparseSWAMetadataBuilder": "KVCacheSpec",
    "vllm.models.deepseek_v41.sparse_mla.DeepseekV4SparseMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.deepseek_v41.sparse_mla.DeepseekV4FlashMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.dots3_note.nvidia.attention.Dots3NoteMLAMetadataBuilder": "AttentionSpec",
    "vllm.models.inkling.amd.sconv_swa_attn.InklingSconvMetadataBuilder": "AttentionSpec",
    "vllm.models.inkling.nvidia.sconv_swa_attn.InklingSconvMetadataBuilder": "AttentionSpec",
    "vllm.models.kimi_k3.amd.kda_metadata.KimiK3ROCmKDAMetadataBuilder": "MambaSpec",
    "vllm.models.kimi_k3.nvidia.kda_metadata.KimiK3KDAMetadataBuilder": "MambaSpec",
    "vllm.models.minimax_m3.amd.indexer_aiter.MiniMaxM3IndexerAiterMetadataBuilder": "AttentionSpec",
    "vllm.models.minimax_m3.amd.sparse_attention_msa.MiniMaxM3SparseAiterPAMetadataBuilder": "AttentionSpec",
    "vllm.models.minimax_m3.common.indexer.MiniMaxM3IndexerMetadataBuilder": "AttentionSpec",
    "vllm.models.minimax_m3.common.indexer.MiniMaxM3IndexerTritonMetadataBuilder": "AttentionSpec",
    "vllm.models.minimax_m3.common.sparse_attention.MiniMaxM3SparseMetadataBuilder": "AttentionSpec",
    "vllm.models.minimax_m3.nvidia.indexer_msa.MiniMaxM3IndexerMSAMetadataBuilder": "AttentionSpec",
    "vllm.models.minimax_m3.nvidia.sparse_attention_msa.MiniMaxM3SparseMSAMetadataBuilder": "AttentionSpec",
    "vllm.models.qwen4_exp.amd.qsa.Qwen4ExpQSAMetadataBuilder": "AttentionSpec",
    "vllm.models.qwen4_exp.common.qsa_cache.QSAMetadataBuilder": "AttentionSpec",
    "vllm.models.qwen4_exp.nvidia.qsa.Qwen4ExpQSAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.b12x.B12xPagedMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.cpu_attn.CPUAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.flash_attn.FlashAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.flashinfer.FlashInferMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.flex_attention.FlexAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.gdn_attn.GDNAttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.hpc_attn.HpcAttnMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.linear_attn.LinearAttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.linear_attn.BailingLinearAttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.mamba1_attn.Mamba1AttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.mamba2_attn.Mamba2AttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.mamba_attn.BaseMambaAttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.mla.amx_mla.AMXMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.cutlass_mla.CutlassMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashattn_mla.FlashAttnMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashattn_mla.XPUFlashAttnMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashattn_mla_sparse.FlashAttnMLASparseMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashinfer_mla.FlashInferMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashinfer_mla_sparse.FlashInferMLASparseMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashinfer_mla_sparse.FlashInferMLASparseTRTLLMMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashinfer_mla_sparse_sm90.FlashInferMLASparseSM90Builder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashmla.FlashMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.flashmla_sparse.FlashMLASparseMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.indexer.KpoolTailMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.indexer.DeepseekV32IndexerMetadataBuilder": "KVCacheSpec",
    "vllm.v1.attention.backends.mla.rocm_aiter_mla.AiterMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.rocm_aiter_mla_sparse.ROCMAiterMLASparseMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.rocm_paged_mxfp4_indexer.RocmMxfp4IndexerMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.rocm_paged_mxfp4_indexer."
    "DeepseekV41RocmMxfp4IndexerMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.sparse_indexer.DeepseekV41SparseIndexerMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.sparse_swa.DeepseekSparseSWAMetadataBuilder": "KVCacheSpec",
    "vllm.v1.attention.backends.mla.tokenspeed_mla.TokenspeedMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.triton_mla.TritonMLAMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.mla.xpu_mla_sparse.XPUMLASparseMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.rocm_aiter_fa.AiterFlashAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.rocm_aiter_unified_attn.RocmAiterUnifiedAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.rocm_attn.RocmAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.rocm_segmented_attn.RocmSegmentedAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.short_conv_attn.ShortConvAttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.short_conv_attn.PleShortConvAttentionMetadataBuilder": "MambaSpec",
    "vllm.v1.attention.backends.triton_attn.TritonAttentionMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.triton_attn_diffkv.TritonAttentionDiffKVMetadataBuilder": "AttentionSpec",
    "vllm.v1.attention.backends.turboquant_attn.TurboQuantMetadataBuilder": "AttentionSpec",
}
"""Each builder, and the spec that it says it takes."""

KNOWN_ANNOTATED = frozenset(
    {
        "vllm.model_executor.layers.attention.mla_attention.MLACommonMetadataBuilder",
        "vllm.models.dots3_note.nvidia.attention.Dots3NoteMLAMetadataBuilder",
        "vllm.models.kimi_k3.amd.kda_metadata.KimiK3ROCmKDAMetadataBuilder",
        "vllm.models.kimi_k3.nvidia.kda_metadata.KimiK3KDAMetadataBuilder",
        "vllm.v1.attention.backends.flashinfer.FlashInferMetadataBuilder",
        "vllm.v1.attention.backends.gdn_attn.GDNAttentionMetadataBuilder",
        "vllm.v1.attention.backends.linear_attn.LinearAttentionMetadataBuilder",
        "vllm.v1.attention.backends.linear_attn.BailingLinearAttentionMetadataBuilder",
        "vllm.v1.attention.backends.mamba1_attn.Mamba1AttentionMetadataBuilder",
        "vllm.v1.attention.backends.mamba2_attn.Mamba2AttentionMetadataBuilder",
        "vllm.v1.attention.backends.mamba_attn.BaseMambaAttentionMetadataBuilder",
        "vllm.v1.attention.backends.mla.amx_mla.AMXMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.cutlass_mla.CutlassMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.flashattn_mla.FlashAttnMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.flashattn_mla.XPUFlashAttnMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.flashinfer_mla.FlashInferMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.flashmla.FlashMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.rocm_aiter_mla.AiterMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.tokenspeed_mla.TokenspeedMLAMetadataBuilder",
        "vllm.v1.attention.backends.mla.triton_mla.TritonMLAMetadataBuilder",
        "vllm.v1.attention.backends.short_conv_attn.ShortConvAttentionMetadataBuilder",
        "vllm.v1.attention.backends.short_conv_attn.PleShortConvAttentionMetadataBuilder",
        "vllm.v1.attention.backends.turboquant_attn.TurboQuantMetadataBuilder",
    }
)
"""Those that also declare it as the type of their ``kv_cache_spec``, themselves or through a base."""
