"""Runs of stand-ins: what is missing, breaks down, hangs or gives up, and what is kept of what was reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fake_checkers as fake
import psutil
import pytest

from genericbuilders.checkers import CHECKERS, Checker, Request, Run, Severity, Status, check, check_all, process
from genericbuilders.checkers.ty import Ty

Install = Callable[..., Path]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    def put(name: str, body: str) -> Path:
        return fake.install(monkeypatch, tmp_path, name, body)

    return put


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    files = tuple(tmp_path / name for name in ("b.py", "a.py"))
    for file in files:
        file.write_text("x = 1\n" * 9, encoding="utf-8")
    return Request(files, tmp_path, cache_dir=tmp_path / "cache", time_limit=20)


def named(name: str) -> Checker:
    return next(checker for checker in CHECKERS if checker.name == name)


def wait_for_the_end_of(pid: int) -> None:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.02)


def run(request: Request, name: str = "mypy") -> Run:
    checker = named(name)
    return check(checker, checker.levels[-1], request)


def test_what_is_reported_is_in_the_order_of_the_files(install: Install, request_: Request) -> None:
    b, a = request_.files
    reports = [fake.mypy_report(a, 2), fake.mypy_report(b, 7, severity="note"), fake.mypy_report(b, 1)]
    install("mypy", fake.mypy_says([*reports, fake.mypy_report("elsewhere.py", 1)]))
    found = run(request_)
    assert (found.status, found.reason, found.version, found.label) == (Status.OK, None, "9.9", "mypy-strict")
    assert [(each.path, each.line) for each in found.diagnostics] == [(b, 1), (b, 7), (a, 2)]
    assert found.error_lines == {(b, 1), (a, 2)}
    assert found.dropped == 1
    assert 0 < found.seconds < 20
    assert found.peak_bytes > 0


def test_a_file_is_known_by_any_of_its_names(install: Install, request_: Request, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    install("mypy", fake.mypy_says([fake.mypy_report("link/a.py", 3)]))
    assert run(request_).error_lines == {(request_.files[1], 3)}


def test_warnings_count_where_the_level_says_so(install: Install, request_: Request) -> None:
    report = (
        f'{{"file": "{request_.files[0]}", "severity": "warning", "message": "m", "rule": "r",'
        ' "range": {"start": {"line": 4, "character": 0}}}'
    )
    whole = f'{{"summary": {{"filesAnalyzed": 2}}, "generalDiagnostics": [{report}]}}'
    for name, lines in {"pyright": set[int](), "basedpyright": {5}}.items():
        install(name, f"echo '{whole}'; exit 1")
        found = run(request_, name)
        assert found.status is Status.OK, found.reason
        assert {line for _, line in found.error_lines} == lines
        assert [each.severity for each in found.diagnostics] == [Severity.WARNING]


def test_missing(monkeypatch: pytest.MonkeyPatch, request_: Request) -> None:
    fake.only(monkeypatch)
    found = run(request_, "ty")
    assert (found.status, found.version) == (Status.MISSING, None)
    assert found.reason == f"ty is nowhere; to install it: pip install ty=={Ty.tested}"


def test_a_variable_that_names_no_program(monkeypatch: pytest.MonkeyPatch, request_: Request) -> None:
    monkeypatch.setenv("GENERICBUILDERS_TY", "/typo")
    found = run(request_, "ty")
    assert found.status is Status.MISSING
    assert found.reason == "GENERICBUILDERS_TY is '/typo', and there is no such program"


def test_missing_everywhere(monkeypatch: pytest.MonkeyPatch, request_: Request, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GENERICBUILDERS_TY", raising=False)
    found = run(request_, "ty")
    assert found.status is Status.MISSING
    assert found.reason == f"ty is neither in {tmp_path} nor on PATH; to install it: pip install ty=={Ty.tested}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo oops >&2; exit 3", "it ended with exit code 3; that is none of 0, 1\noops"),
        ("kill -SEGV $$", "it was ended by signal 11; that is none of 0, 1"),
        ("echo Success; exit 0", "it ended with exit code 0; line 1 of output is not JSON"),
        ("exit 1", "it ended with exit code 1; it reported nothing that could be read"),
        (
            fake.mypy_says([fake.mypy_report("a.py", 1)], 0),
            "it ended with exit code 0; it reported errors all the same",
        ),
        ("printf '\\377\\376'; exit 1", "it ended with exit code 1; line 1 of output is not JSON"),
    ],
    ids=["exit code", "signal", "prose", "nothing", "a lie", "bytes"],
)
def test_breakdowns(install: Install, request_: Request, body: str, reason: str) -> None:
    install("mypy", body)
    found = run(request_)
    assert found.status is Status.CRASHED
    assert found.reason is not None
    assert found.reason.startswith(reason)
    assert found.diagnostics == ()


def test_a_program_that_cannot_be_started(install: Install, request_: Request) -> None:
    script = install("mypy", "")
    script.write_text("#!/nowhere/sh\n", encoding="utf-8")
    found = run(request_)
    assert (found.status, found.version) == (Status.CRASHED, None)
    assert found.reason == f"{script} cannot be started: No such file or directory"


def test_a_hanging_one_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request_: Request
) -> None:
    fake.install(monkeypatch, tmp_path, "mypy", f"echo started >&2; (sleep 600 & echo $! > {tmp_path}/pid; wait)")
    quick = Request(request_.files, request_.root, cache_dir=tmp_path, time_limit=1)
    begun = time.monotonic()
    found = run(quick)
    assert found.status is Status.TIMED_OUT
    assert found.reason == "not done after 1 s\nstarted"
    assert time.monotonic() - begun < 10
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    wait_for_the_end_of(pid)


def test_one_that_hangs_when_asked_for_its_version_costs_its_time_limit_once(
    install: Install, request_: Request, tmp_path: Path
) -> None:
    script = install("mypy", "exit 0")
    script.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/asked\necho what >&2\n{fake.HANGS}\n", encoding="utf-8")
    quick = Request(request_.files, request_.root, cache_dir=tmp_path, time_limit=1)
    runs = check_all([(named("mypy"), level) for level in named("mypy").levels], quick, jobs=1)
    assert [each.status for each in runs] == [Status.TIMED_OUT] * 2
    assert {each.reason for each in runs} == {"not done after 1 s, when it was asked for its version\nwhat"}
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "--version\n"


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ("\\033[2J1.2\\a x", "[2J1.2 x"),
        ("9" * 99, "9" * 40),
        ("1.2\\rmypy\\n3", "1.2"),
        ("\\001\\002", None),
        ("", None),
    ],
)
def test_a_version_that_is_none(install: Install, request_: Request, told: str, version: str | None) -> None:
    script = install("mypy", "exit 0")
    script.write_text(f"#!/bin/sh\nif [ $1 = --version ]; then printf 'mypy {told}'; fi\nexit 0\n", encoding="utf-8")
    found = run(request_)
    assert (found.status, found.version) == (Status.OK, version)


@pytest.mark.parametrize("name", ["pyrefly", "zuban"])
def test_a_breakdown_over_a_name_that_looks_like_a_pattern(install: Install, request_: Request, name: str) -> None:
    install(name, "echo No Python files found >&2; exit 101")
    odd = tuple(request_.root / each for each in ("[x].py", "q?.py"))
    for path in odd:
        path.touch()
    told = run(replace(request_, files=(*request_.files, *odd)), name).reason or ""
    assert f"it reads names as patterns, and may not find {odd[0]} (and 1 more): rename it, or leave it out" in told
    assert "patterns" not in (run(request_, name).reason or "")


def test_one_that_writes_without_end(monkeypatch: pytest.MonkeyPatch, install: Install, request_: Request) -> None:
    monkeypatch.setattr(process, "MAX_OUTPUT_BYTES", 1 << 20)
    install("mypy", "while :; do echo 'no end no end no end no end no end'; done")
    found = run(request_)
    assert (found.status, found.reason) == (Status.CRASHED, "it wrote more than 1 MiB")


def test_mypy_gives_up_at_a_syntax_error(install: Install, request_: Request) -> None:
    install("mypy", fake.mypy_says([fake.mypy_report("a.py", 4, "bad syntax\nand more", code="syntax")], 2))
    found = run(request_)
    assert found.status is Status.BLOCKED
    assert found.reason == "stopped before any other file was checked: a.py:4: bad syntax"
    assert found.error_lines == {(request_.files[1], 4)}


def test_several_keep_their_order_and_one_breakdown_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, install: Install, request_: Request
) -> None:
    fake.only(monkeypatch, "mypy", "ty", "zuban")
    install("mypy", "sleep 0.3; exit 0")
    install("ty", "kill -9 $$")
    install("zuban", "echo 'a.py:3:1: error: no  [misc]'; exit 1")
    pairs = [(checker, checker.levels[0]) for checker in reversed(CHECKERS)]
    told: list[str] = []
    runs = check_all(pairs, request_, jobs=3, finished=lambda each: told.append(each.label))
    assert [(each.checker, each.status.value) for each in runs] == [
        ("zuban", "ok"),
        ("ty", "crashed"),
        ("pyrefly", "missing"),
        ("basedpyright", "missing"),
        ("pyright", "missing"),
        ("mypy", "ok"),
    ]
    assert sorted(told) == sorted(each.label for each in runs)
    assert told[-1] == "mypy-default"


def test_an_exception_on_the_way_stops_everything(install: Install, request_: Request) -> None:
    install("mypy", fake.HANGS)
    install("ty", "echo '[]'")

    def interrupt(found: Run) -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        check_all(
            [(named("ty"), named("ty").levels[0]), (named("mypy"), named("mypy").levels[0])], request_, 2, interrupt
        )
    assert time.monotonic() - begun < 10


def test_no_jobs(request_: Request) -> None:
    with pytest.raises(ValueError, match="jobs is 0; at least one process must run"):
        check_all([], request_, jobs=0)


@pytest.mark.parametrize(
    ("files", "limit", "message"),
    [
        ((), 1.0, "there is no file to check"),
        ((Path("a.py"),), 1.0, "a.py is a relative path"),
        ((Path("/a.py"),), 0.0, "the time limit is 0.0 s; it must be above 0"),
        ((Path("/a.py"),), float("nan"), "the time limit is nan s"),
    ],
)
def test_requests_that_make_no_sense(files: tuple[Path, ...], limit: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Request(files, Path("/"), time_limit=limit)


def test_levels_have_names_of_their_own() -> None:
    labels = [checker.label(level) for checker in CHECKERS for level in checker.levels]
    assert len(labels) == len(set(labels)) == 12
    with pytest.raises(LookupError, match="mypy has no level 'lax'; it has default, strict"):
        named("mypy").level("lax")
