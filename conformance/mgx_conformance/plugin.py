"""The pytest plugin: options, the file of expected failures, the scorecard.  Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from .expected import ExpectedFailures

__all__ = ["LEVELS"]

LEVELS: Final = ("hygiene", "ops", "graphs", "onnx", "models", "contract", "cost")
SUITE: Final = Path(__file__).parent / "suite"

expectations = pytest.StashKey[ExpectedFailures]()
scorecard = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mgx", "mgx conformance kit (--pyargs mgx_conformance.suite)")
    add = group.addoption
    add("--mgx-target", metavar="NAME", help="target under test: the name of an installed one, or package.module:Class")
    add("--mgx-expect", metavar="FILE", help="expected failures: a TOML file of [[expected]] test = ..., reason = ...")
    add("--mgx-level", metavar="LEVELS", help=f"some of {','.join(LEVELS)} (default: all; with --mgx-ops: ops)")
    add("--mgx-ops", metavar="PACKAGE", help="test the ops of an installed package instead of the standard set")
    add(
        "--mgx-scorecard",
        metavar="FILE",
        action="append",
        default=[],
        help="write results to a .json or .html file; repeatable",
    )
    add("--mgx-models", metavar="DIR", help="a directory of .onnx files for the level `models`")
    add(
        "--mgx-sample", metavar="N", type=int, default=1, help="only every N-th case of an op (each op keeps its first)"
    )
    add("--mgx-examples", metavar="N", type=int, default=25, help="random graphs per theme (default %(default)s)")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("mgx_target")
    if not name:
        if any(a.partition("::")[0].startswith("mgx_conformance.suite") for a in config.args):
            raise pytest.UsageError("the conformance suite needs --mgx-target NAME")
        return
    from .scorecard import Scorecard

    chosen = levels(config)
    file = config.getoption("mgx_expect")
    try:
        config.stash[expectations] = ExpectedFailures.read(file) if file else ExpectedFailures([])
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--mgx-expect {file}: {error}") from None
    config.stash[scorecard] = Scorecard(name, chosen)
    config.pluginmanager.register(Collector(config.stash[scorecard]), "mgx-conformance-collector")
    for path in config.getoption("mgx_scorecard"):
        if not path.endswith((".json", ".html")):
            raise pytest.UsageError(f"--mgx-scorecard takes .json and .html files, got {path}")


def levels(config: pytest.Config) -> tuple[str, ...]:
    """Returns the selected levels.  Errors: UsageError for an unknown level."""
    said = config.getoption("mgx_level") or ("ops" if config.getoption("mgx_ops") else ",".join(LEVELS))
    chosen = [w.strip() for w in said.split(",") if w.strip()]
    for word in chosen:
        if word not in LEVELS:
            raise pytest.UsageError(f"--mgx-level: {word!r} is not a level; known are {', '.join(LEVELS)}")
    return tuple(level for level in LEVELS if level in chosen)


def level_of(path: Path) -> str:
    """Returns the level that a file of the suite belongs to; empty for any other file."""
    return path.stem.removeprefix("test_") if path.parent == SUITE and path.name.startswith("test_") else ""


def id_of(item: pytest.Item) -> str:
    """Returns a test's name in expected failures and scorecards: ``ops/softmax-last-float32/transposed``,
    ``contract/threads``.
    """
    level, name = level_of(item.path), getattr(item, "originalname", item.name)
    words = [level] if name == "test_case" else [level, name.removeprefix("test_")]
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        words.append(callspec.id)
    return "/".join(words)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    level = level_of(collection_path)
    if level and config.getoption("mgx_target") and level not in levels(config):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if level_of(item.path)]
    if not ours:
        return
    if not config.getoption("mgx_target"):
        raise pytest.UsageError("the conformance suite needs --mgx-target NAME")
    failures = config.stash[expectations]
    ids = {}
    for item in ours:
        ids[id_of(item)] = item
        item.user_properties.append(("mgx", id_of(item)))
    whole = not any("::" in a for a in config.args) and config.getoption("mgx_sample") <= 1
    whole = whole and not config.getoption("mgx_ops")
    if whole:
        unknown = failures.matching_nothing(ids, levels(config))
        if unknown:
            raise pytest.UsageError(
                f"--mgx-expect: no test is called {', '.join(map(repr, unknown))}; remove these lines"
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report: Any = yield
    if not level_of(item.path) or call.when == "teardown":
        return report
    line = item.config.stash[expectations].find(id_of(item))
    if line is None or report.skipped:
        return report
    if report.failed:
        report.outcome = "skipped"
        report.wasxfail = f"reason: {line.reason}"
    elif call.when == "call":
        report.outcome = "failed"
        report.longrepr = f"stale line: {id_of(item)} passes, but {line.test!r} is expected to fail ({line.reason})"
    return report


class Collector:
    """Collects test reports; registered only if a target is under test."""

    def __init__(self, card: Any) -> None:
        self.card = card

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if "mgx" in properties and (report.when == "call" or not report.passed):
            name = properties.pop("mgx")
            self.card.add(name, outcome(report), reason(report), report.duration, properties)


def outcome(report: pytest.TestReport) -> str:
    if report.skipped:
        return "expected" if hasattr(report, "wasxfail") else "skipped"
    return "pass" if report.passed else "fail"


def reason(report: pytest.TestReport) -> str:
    """Returns the first line of a report's message."""
    if hasattr(report, "wasxfail"):
        return report.wasxfail.removeprefix("reason: ")
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).splitlines()[0][:500]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if scorecard not in config.stash or hasattr(config, "workerinput"):
        return
    card = config.stash[scorecard]
    if not card.results:
        return
    terminalreporter.section(f"mgx conformance of target {card.target!r}")
    for line in card.table():
        terminalreporter.write_line(line)
    for path in config.getoption("mgx_scorecard"):
        Path(path).write_text(card.json() if path.endswith(".json") else card.html(), encoding="utf-8")
        terminalreporter.write_line(f"written: {path}")


# fixtures -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def mgx_target(request: pytest.FixtureRequest) -> Any:
    """Returns the target under test."""
    return load(request.config.getoption("mgx_target"))


def load(name: str) -> Any:
    """Returns a target by name, or from a factory given as ``package.module:Class``."""
    if ":" in name:
        import importlib

        module, _, attribute = name.partition(":")
        return getattr(importlib.import_module(module), attribute)()
    import mgx_core

    return mgx_core.get_target(name)
