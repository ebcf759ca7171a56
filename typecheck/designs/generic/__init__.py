"""``AttentionMetadataBuilder[M, S]`` with adapters: this library's core itself."""
