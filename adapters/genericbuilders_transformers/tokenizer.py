"""Hugging Face tokenizers behind the engine's `Tokenizer` protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer, TokenizersBackend

__all__ = ["HFTokenizer"]


class HFTokenizer:
    """The tokenizer in a model's folder, read from there only.

    Args:
        path: the folder.

    Attributes:
        eos_token_ids: tokens that the tokenizer says end a text; a model's own settings may name more.

    Raises:
        OSError: the folder's files cannot be read.
        ValueError: the folder holds no tokenizer, or one that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        # Several times faster on the few tokens that a detokenizer decodes at a time.
        self._backend = self._tokenizer.backend_tokenizer if isinstance(self._tokenizer, TokenizersBackend) else None
        eos = self._tokenizer.eos_token_id
        self.eos_token_ids: frozenset[int] = frozenset() if eos is None else frozenset({eos})

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, with the special tokens that the model expects in front."""
        return self._tokenizer.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ``token_ids``, without special tokens; spaces are left as they are."""
        ids = list(token_ids)
        if self._backend is not None:
            return self._backend.decode(ids, skip_special_tokens=True)
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
