"""A run: every file is done whatever happens to others, in one process or several, and Ctrl-C leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import fake_migration as fake
import psutil
import pytest

from genericbuilders.migration.files import Failure, find
from genericbuilders.migration.result import Target
from genericbuilders.migration.run import Engine, Run, Stage, run
from genericbuilders.migration.workers import Crash, Method, call_each

ROOT = Path(__file__).parents[2]
METHODS: list[tuple[int, Method]] = [(1, "fork"), (2, "fork"), (2, "spawn")]


def migrate(folder: Path, workers: int | None = None, method: Method | None = None) -> Run:
    return run(fake.ENGINE, find([folder]), Target.GENERIC, workers=workers, method=method)


def fill(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def reasons(done: Run) -> dict[str, str]:
    return {failure.path.name: failure.reason for failure in done.failures}


@pytest.mark.parametrize(("workers", "method"), METHODS)
def test_one_file_costs_no_other(tmp_path: Path, workers: int, method: Method) -> None:
    fill(tmp_path, {f"{number}.py": fake.SOURCE + f"# {number}\n" for number in range(5)})
    fill(
        tmp_path,
        {
            "crash.py": fake.SOURCE + "# CRASH\n",
            "spoilt.py": fake.SOURCE + "# SPOILT\n",
            "syntax.py": "def (:\n",
            "latin.py": f"# coding: latin-1\n# GREEK\n{fake.SOURCE}",
            "encoding.py": "# coding: nonsense\n",
            "refused.py": fake.SOURCE + "# REFUSED\n",
            "other.py": "x = 1\n",
            "nothing.py": "# OldBuilder: NOTHING\n",
        },
    )
    done = migrate(tmp_path, workers, method)
    assert {result.path.name: result.after for result in done.changed} == {
        f"{number}.py": fake.MIGRATED + f"# {number}\n" for number in range(5)
    }
    # What nothing was found in is not among the results.
    assert [result.path.name for result in done.results] == [*(f"{number}.py" for number in range(5)), "refused.py"]
    assert len(done.sources) == 12
    told = reasons(done)
    fault = "a fault of this program, please report it: "
    assert told == {
        "crash.py": f"{fault}LookupError: no such thing (run.py, line {told['crash.py'].rpartition(' ')[2]}",
        "encoding.py": "it declares an unknown encoding: nonsense; correct the declaration",
        "latin.py": told["latin.py"],
        "spoilt.py": f"{fault}ValueError: what it was rewritten to does not compile: invalid syntax, line 1 "
        f"(run.py, line {told['spoilt.py'].rpartition(' ')[2]}",
        "syntax.py": "it does not parse: invalid syntax, line 1",
    }
    assert "has the character '\N{GREEK SMALL LETTER ALPHA}' (U+03B1) in line 3" in told["latin.py"]
    assert [failure.path.name for failure in done.failures] == sorted(told)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_that_dies_costs_its_file(tmp_path: Path, method: Method) -> None:
    fill(tmp_path, {f"{number}.py": fake.SOURCE for number in range(6)})
    fill(tmp_path, {"a.py": fake.SOURCE + "# DIE" * 9, "b.py": fake.SOURCE + "# DIE"})
    done = migrate(tmp_path, 2, method)
    assert len(done.changed) == 6
    why = "a fault of this program, please report it: the process that worked on it ended with exit code 3"
    assert reasons(done) == {"a.py": why, "b.py": why}


def test_an_engine_that_cannot_look_at_one_file(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": fake.SOURCE, "b.py": "# UNREADABLE\n"})
    done = migrate(tmp_path)
    assert [result.path.name for result in done.changed] == ["a.py"]
    assert reasons(done) == {"b.py": "a fault of this program, please report it: KeyError: 'UNREADABLE'"}


def test_an_engine_that_cannot_look_at_all(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": fake.SOURCE, "b.py": fake.SOURCE})

    def read(files: Mapping[Path, str]) -> fake.FakeProject:
        if len(files) > 1:
            raise KeyError("together")
        return fake.FakeProject.read(files)

    with pytest.raises(KeyError, match="together"):
        run(Engine(read, fake.rewrite), find([tmp_path]), Target.GENERIC)


def test_failures_of_the_search_are_kept(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": "x = 1\n"})
    (tmp_path / "z.py").symlink_to("gone")
    closed = Failure(tmp_path / "closed", "Permission denied")
    found = replace(find([tmp_path]), failures=(closed,))
    lost = Failure(tmp_path / "z.py", "it is a link to gone, which is not there")
    assert run(fake.ENGINE, found, Target.GENERIC).failures == (closed, lost)


def _note(told: list[tuple[Stage, int, int]], stage: Stage, done: int, total: int) -> None:
    told.append((stage, done, total))


def test_progress_counts_up_to_the_end(tmp_path: Path) -> None:
    fill(tmp_path, {f"{number}.py": fake.SOURCE for number in range(3)})
    fill(tmp_path, {"other.py": ""})
    for workers in (1, 2):
        told: list[tuple[Stage, int, int]] = []
        note = partial(_note, told)
        run(fake.ENGINE, find([tmp_path]), Target.WIDENED, note, workers=workers)
        assert told == [
            *((Stage.READING, number, 4) for number in range(1, 5)),
            *((Stage.SEARCHING, number, 4) for number in range(5)),
            *((Stage.MIGRATING, number, 3) for number in range(4)),
        ]


def test_the_engine_may_keep_the_texts_that_it_is_given(tmp_path: Path) -> None:
    def read(files: Mapping[Path, str]) -> fake.FakeProject:
        return fake.FakeProject(files, {})

    fill(tmp_path, {f"{number}.py": fake.SOURCE for number in range(4)})
    for method in METHODS:
        done = run(Engine(read, fake.rewrite), find([tmp_path]), Target.GENERIC, _nothing, *method)
        assert len(done.changed) == 4


def _nothing(stage: Stage, done: int, total: int) -> None:
    del stage, done, total


def test_few_files_need_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError("no process")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    fill(tmp_path, {f"{number}.py": fake.SOURCE for number in range(7)})
    assert len(migrate(tmp_path).changed) == 7
    # Where none can be started, one is enough for many, too.
    fill(tmp_path, {f"{number}.py": fake.SOURCE for number in range(7, 20)})
    assert len(migrate(tmp_path, method="fork").changed) == 20


def double(number: int) -> int:
    return 2 * number


def whoami(_: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def unpicklable(_: int) -> object:
    return lambda: None


def test_results_are_in_order_and_processes_no_more_than_asked_for() -> None:
    numbers = list(range(50))
    assert call_each(double, numbers, 3, lambda done: None) == [2 * number for number in numbers]
    processes = set(call_each(whoami, numbers, 3, lambda done: None))
    assert len(processes) == 3
    assert os.getpid() not in processes
    assert set(call_each(whoami, numbers[:5], 1, lambda done: None)) == {os.getpid()}
    assert call_each(double, [], 3, lambda done: None) == []


def test_a_result_that_cannot_be_sent() -> None:
    for answer in call_each(unpicklable, [1, 2, 3], 2, lambda done: None):
        assert isinstance(answer, Crash)
        assert "pickle" in answer.reason


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    fill(tmp_path, {f"{number}.py": fake.SOURCE + "# SLOW" for number in range(4)})

    def stop(stage: Stage, done: int, total: int) -> None:
        if stage is Stage.MIGRATING:
            signal.setitimer(signal.ITIMER_REAL, 0.3)

    def interrupt(*_: object) -> None:
        assert len(children() - others) == 2
        raise KeyboardInterrupt

    others = children()
    before = signal.signal(signal.SIGALRM, interrupt)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(fake.ENGINE, find([tmp_path]), Target.GENERIC, stop, workers=2, method="fork")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 5
    assert children() == others


def test_processes_end_with_the_first_one_even_if_that_is_killed() -> None:
    script = (
        "import time\n"
        "from genericbuilders.migration.workers import call_each\n"
        "def nap(_):\n    print('up', flush=True)\n    time.sleep(0.5)\n"
        "call_each(nap, list(range(100)), 3, lambda done: None, 'fork')\n"
    )
    paths = os.pathsep.join(map(str, [ROOT, ROOT / "tests" / "support"]))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        workers = psutil.Process(process.pid).children()
        process.kill()
        # Their pipe ends when the last one has gone.
        process.stdout.read()
    gone, alive = psutil.wait_procs(workers, timeout=10)
    assert (len(gone), alive) == (3, [])
