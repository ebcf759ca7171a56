from os import PathLike

class GenerationConfig:
    bos_token_id: int | None
    decoder_start_token_id: int | None
    do_sample: bool | None
    eos_token_id: int | list[int] | None
    forced_bos_token_id: int | None
    pad_token_id: int | None

    def __init__(
        self,
        *,
        bos_token_id: int | None = None,
        do_sample: bool | None = None,
        eos_token_id: int | list[int] | None = None,
        max_new_tokens: int | None = None,
        pad_token_id: int | None = None,
        use_cache: bool | None = None,
    ) -> None: ...
    @classmethod
    def from_pretrained(
        cls, pretrained_model_name: str | PathLike[str], *, local_files_only: bool = False
    ) -> GenerationConfig: ...
    def save_pretrained(self, save_directory: str | PathLike[str]) -> None: ...
