"""``genericbuilders generate``: run prompts through a model."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from genericbuilders.cli.errors import ExitCode, UserError, reported, tell
from genericbuilders.cli.interrupt import Interrupt
from genericbuilders.cli.progress import counting, stages
from genericbuilders.cli.prompts import Prompt, collect_prompts
from genericbuilders.cli.results import JsonWriter, OrderedResults, RuleWriter, StreamWriter, Writer

if TYPE_CHECKING:
    from genericbuilders.cache import CachePlan
    from genericbuilders.cli.serving import Plan
    from genericbuilders.engine.engine import Engine
    from genericbuilders.engine.request import SamplingParams
    from genericbuilders.specs import MambaCacheMode

__all__ = ["DType", "Device", "KVCacheDType", "StatesKept", "generate"]


class Device(StrEnum):
    """Where to run."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class DType(StrEnum):
    """Of weights, activations and caches."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class KVCacheDType(StrEnum):
    """Of the caches of attention layers; a name says how key and value are quantised."""

    AUTO = "auto"
    FP8 = "fp8"
    FP8_PER_TOKEN_HEAD = "fp8_per_token_head"
    INT8_PER_TOKEN_HEAD = "int8_per_token_head"
    TURBOQUANT_K8V4 = "turboquant_k8v4"
    TURBOQUANT_4BIT_NC = "turboquant_4bit_nc"
    TURBOQUANT_K3V4_NC = "turboquant_k3v4_nc"
    TURBOQUANT_3BIT_NC = "turboquant_3bit_nc"
    TURBOQUANT_2BIT_NC = "turboquant_2bit_nc"


class StatesKept(StrEnum):
    """Which states of a request state-space layers keep."""

    NONE = "none"
    ALIGN = "align"
    ALL = "all"

    @property
    def mode(self) -> MambaCacheMode:
        """The same as specs name it."""
        return "none" if self is StatesKept.NONE else "align" if self is StatesKept.ALIGN else "all"


def generate(
    model: Annotated[Path | None, typer.Option(help="The model's folder. Default: a small one, brought once.")] = None,
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt; may be given more than once.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help='More prompts: one object {"prompt": TEXT} a line.')
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens to generate for each prompt at most.")] = 16,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after an end-of-sequence token.")] = False,
    device: Annotated[Device, typer.Option(help="Where to run.")] = Device.AUTO,
    dtype: Annotated[
        DType, typer.Option(help="Of weights and caches; auto: float32 on CPU, bfloat16 on CUDA.")
    ] = DType.AUTO,
    kv_cache_dtype: Annotated[
        KVCacheDType, typer.Option(help="How attention layers' caches are quantised; auto: not at all.")
    ] = KVCacheDType.AUTO,
    block_size: Annotated[int, typer.Option(help="Tokens in one cache block.")] = 16,
    num_blocks: Annotated[
        int | None, typer.Option(help="Cache blocks of each group of attention layers. Default: as memory allows.")
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(help="Tokens in one request, prompt and output. Default: as many as the model reaches."),
    ] = None,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens in one step.")] = 512,
    max_num_seqs: Annotated[int, typer.Option(help="Requests in one step.")] = 64,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw from this many of the most likely tokens; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the most likely tokens with this mass; 1: from all.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Makes draws repeatable.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End at this text; may be given more than once.")] = None,
    no_prefix_caching: Annotated[
        bool, typer.Option("--no-prefix-caching", help="Do not share blocks between prompts with the same beginning.")
    ] = False,
    mamba_cache_mode: Annotated[
        StatesKept,
        typer.Option(
            help="States that state-space layers keep for other prompts: none, the last at a block's end, or all at "
            "blocks' ends."
        ),
    ] = StatesKept.NONE,
    mamba_block_size: Annotated[
        int | None, typer.Option(help="Tokens between two such states. Default: the block size.")
    ] = None,
    no_hybrid_kv_cache: Annotated[
        bool, typer.Option("--no-hybrid-kv-cache", help="Let layers with a window keep all their blocks.")
    ] = False,
    no_fast_prefill: Annotated[
        bool,
        typer.Option(
            "--no-fast-prefill",
            help="Run layers that share another's cache for all tokens, also for those whose logits nobody reads.",
        ),
    ] = False,
    show_cache_plan: Annotated[
        bool,
        typer.Option("--show-cache-plan", help="Write how caches use memory, also for a model with one kind of layer."),
    ] = False,
    backend: Annotated[str | None, typer.Option(help="Back end of attention layers; see the command backends.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object a prompt.")] = False,
) -> None:
    """Generate text. Results go to stdout, everything else to stderr."""
    out = sys.stdout
    # Whatever a model's code prints is not a result.
    with reported(), redirect_stdout(sys.stderr):
        params, collected = _check_request(
            prompt or [], prompts, max_tokens, temperature, top_k, top_p, seed, stop or [], ignore_eos
        )
        results = OrderedResults(collected, _writer(out, json, len(collected)))
        with Interrupt(lambda: _last_words(results)) as interrupt:
            try:
                with stages("starting") as progress:
                    from genericbuilders.cli.serving import make_plan, start
                    from genericbuilders.engine.setup import EngineOptions

                    options = EngineOptions(
                        block_size=block_size,
                        num_blocks=num_blocks,
                        max_model_len=max_model_len,
                        max_num_batched_tokens=max_num_batched_tokens,
                        max_num_seqs=max_num_seqs,
                        enable_prefix_caching=not no_prefix_caching,
                        hybrid_kv_cache=not no_hybrid_kv_cache,
                    )
                    plan: Plan = make_plan(
                        model,
                        device.value,
                        dtype.value,
                        options,
                        backend,
                        mamba_cache_mode.mode,
                        mamba_block_size,
                        kv_cache_dtype.value,
                        fast_prefill=not no_fast_prefill,
                    )
                    engine = start(plan, progress, lambda cache_plan: _show_plan(cache_plan, show_cache_plan))
                    for each in collected:
                        engine.add_request(each.source, each.text, params)
                _run(engine, results, interrupt, progress_shown=not out.isatty())
            except KeyboardInterrupt:
                tell(_aborted(results.release()))
                raise
        failed = [
            (prompt.source, completion.error)
            for index, prompt in enumerate(collected)
            if (completion := results.completions[index]).error is not None
        ]
        for source, error in failed:
            tell(f"{source}: {error}", "error")
        if failed:
            raise typer.Exit(ExitCode.FAILED)


def _check_request(
    texts: Sequence[str],
    file: Path | None,
    max_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | None,
    stop: Sequence[str],
    ignore_eos: bool,
) -> tuple[SamplingParams, list[Prompt]]:
    """What can be checked without torch."""
    from genericbuilders.engine.request import SamplingParams

    if seed is not None and not -(2**63) <= seed < 2**64:
        raise UserError(f"seed is {seed}; it must fit into 64 bits")
    params = SamplingParams(max_tokens, temperature, top_k, top_p, seed, tuple(stop), ignore_eos)
    return params, collect_prompts(texts, file)


def _writer(out: TextIO, as_json: bool, num_prompts: int) -> Writer:
    if as_json:
        return JsonWriter(out)
    return StreamWriter(out) if num_prompts == 1 else RuleWriter(out)


def _run(engine: Engine, results: OrderedResults, interrupt: Interrupt, progress_shown: bool) -> None:
    """Serve the queued requests to their ends, and say what it took."""
    from genericbuilders.cli.serving import describe_caches

    num_prompts, num_tokens = len(results), 0
    begun = time.perf_counter()
    with counting(num_prompts, progress_shown) as update:
        for event in engine.stream():
            with interrupt.deferred():
                results.take(event)
            num_tokens += event.token_id is not None
            update(len(results.completions), num_tokens)
    seconds = time.perf_counter() - begun
    stats = engine.stats
    tell(
        f"{_count(num_prompts, 'prompt')}, {_count(num_tokens, 'token')} in {seconds:.2f} s: "
        f"{num_tokens / max(seconds, 1e-9):.1f} tokens/s; {_count(stats.num_steps, 'step')}, "
        f"{_count(stats.num_preemptions, 'preemption')}, {_count(stats.num_cached_tokens, 'cached token')}; "
        f"KV cache: {describe_caches(engine)}"
    )


def _show_plan(plan: CachePlan, wanted: bool) -> None:
    """Show how caches use memory, if that is asked for or there is something to see."""
    if wanted or len(plan.groups) > 1:
        from genericbuilders.cli.plan_table import show_cache_plan

        show_cache_plan(plan)


def _aborted(unfinished: Sequence[Prompt]) -> str:
    return f"stopped by Ctrl-C; aborted: {', '.join(prompt.source for prompt in unfinished) or 'nothing'}"


def _last_words(results: OrderedResults) -> None:
    """For the second thread: nothing here may wait for the first one."""
    try:
        unfinished = results.release(timeout=0.1)
    except Exception:
        unfinished = []
    os.write(2, f"{_aborted(unfinished)}\n".encode(errors="backslashreplace"))


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
