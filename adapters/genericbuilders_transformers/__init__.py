"""Hugging Face causal language models on this library's back ends and engine."""
