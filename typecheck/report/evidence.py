"""Everything that a report is made of, read from files; what does not fit together is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typecheck import toml
from typecheck.corpus import Corpus, read_corpus
from typecheck.costs.measured import Costs, read_costs
from typecheck.explain import Cause, read_causes
from typecheck.report.outside import Outside, read_outside
from typecheck.results import read_results, unlike
from typecheck.verdict import Result

__all__ = ["CALL_SITES", "Evidence", "EvidenceError", "read_call_sites", "read_evidence"]

CALL_SITES = Path("report") / "call_sites.toml"


class EvidenceError(ValueError):
    """Files do not fit together; the message says which and what to do."""


@dataclass(frozen=True)
class Evidence:
    """What is known.

    Attributes:
        corpus: the faults, variants and programs.
        results: of every checker at every level.
        causes: why mypy and pyright differ; ``None``: nobody has written it yet.
        costs: what was measured of them; ``None``: nothing yet.
        outside: the designs under other projects' builders; ``None``: not measured.
        call_sites: the families whose faults are made where builders are held and called, not where one is written.
    """

    corpus: Corpus
    results: tuple[Result, ...]
    causes: tuple[Cause, ...] | None
    costs: Costs | None
    outside: Outside | None
    call_sites: frozenset[str]


def read_evidence(folder: Path, labels: Sequence[str]) -> Evidence:
    """Read the study in ``folder``.

    Raises:
        ValueError: something is missing, malformed, or of another corpus than the one that is there.
    """
    corpus = read_corpus(folder)
    results = folder / "results"
    found = read_results(results, labels)
    _refuse_others(corpus, found)
    causes, costs, outside = folder / "differences.toml", results / "costs.json", results / "out-of-tree.json"
    return Evidence(
        corpus,
        tuple(found),
        tuple(read_causes(causes)) if causes.is_file() else None,
        read_costs(costs) if costs.is_file() else None,
        read_outside(outside) if outside.is_file() else None,
        read_call_sites(folder / CALL_SITES, corpus),
    )


def read_call_sites(path: Path, corpus: Corpus) -> frozenset[str]:
    """The families that ``path`` names.

    Raises:
        EvidenceError: it names none, or one that the corpus has not.
    """
    known = {family.name for family in corpus.families}
    try:
        families = frozenset(toml.texts(toml.load(path), "families"))
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path}: {error}") from None
    if unknown := families - known:
        raise EvidenceError(
            f"{path}: cases/ has no family {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}"
        )
    return families


def _refuse_others(corpus: Corpus, results: Sequence[Result]) -> None:
    for result in results:
        if how := unlike(corpus, result):
            raise EvidenceError(
                f"{result.label}.toml was measured on another corpus: it {how}; "
                "`python -m typecheck run` measures it again"
            )
