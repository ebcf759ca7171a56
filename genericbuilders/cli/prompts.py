"""The prompts of a command, from its options and from a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.cli.errors import UserError

__all__ = ["Prompt", "collect_prompts"]

JSON = dict[str, "JSON"] | list["JSON"] | str | int | float | bool | None


@dataclass(frozen=True)
class Prompt:
    """A prompt, and where it was written, for messages; no two have one ``source``."""

    text: str
    source: str


def collect_prompts(texts: Sequence[str], file: Path | None) -> list[Prompt]:
    """All prompts: first the options', then the file's.

    Raises:
        UserError: there is none, one is no text, or the file cannot be read; the option or line is named.
    """
    prompts = [Prompt(text, f"--prompt #{number}") for number, text in enumerate(texts, 1)]
    if file is not None:
        prompts += _read(file)
    if not prompts:
        raise UserError("there is no prompt; give --prompt TEXT or --prompts FILE.jsonl")
    for prompt in prompts:
        _check(prompt)
    return prompts


def _read(file: Path) -> list[Prompt]:
    if file.is_dir():
        raise UserError(f"{file} is a folder; --prompts takes a file with one JSON object a line")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"the prompts file {file} cannot be read: {error.strerror or error}") from None
    lines = enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
    prompts = [Prompt(_parse(line, f"{file}:{number}"), f"{file}:{number}") for number, line in lines if line.strip()]
    if not prompts:
        raise UserError(f'the prompts file {file} is empty; write one object a line, such as {{"prompt": "Hello"}}')
    return prompts


def _parse(line: bytes, source: str) -> str:
    try:
        value: JSON = json.loads(line.decode("utf-8"), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f'{source}: no JSON ({error}); each line is an object such as {{"prompt": "Hello"}}') from None
    if not isinstance(value, dict):
        raise UserError(f'{source}: the line is {_kind(value)}; each line is an object such as {{"prompt": "Hello"}}')
    unknown = [key for key in value if key != "prompt"]
    if unknown:
        raise UserError(f'{source}: unknown key {", ".join(map(repr, unknown))}; the only key is "prompt"')
    if "prompt" not in value:
        raise UserError(f'{source}: the key "prompt" is missing; each line is an object such as {{"prompt": "Hello"}}')
    text = value["prompt"]
    if not isinstance(text, str):
        raise UserError(f'{source}: "prompt" is {_kind(text)}; it must be a string')
    return text


def _without_repeats(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    names = [name for name, _ in pairs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"repeated key {', '.join(map(repr, repeated))}")
    return dict(pairs)


def _check(prompt: Prompt) -> None:
    if not prompt.text:
        raise UserError(f"{prompt.source}: the prompt is empty; give it at least one character")
    try:
        prompt.text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{prompt.source}: character {error.start + 1} of the prompt is not valid text (half of a surrogate pair, "
            "or a byte that is not UTF-8); remove it"
        ) from None


def _kind(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    return {str: "a string", list: "an array", dict: "an object"}[type(value)]
