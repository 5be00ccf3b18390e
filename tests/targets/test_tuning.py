"""The store of tuning results."""

from __future__ import annotations

from mgx_core.targets.tuning import TuningStore


def test_choices_outlive_the_process_by_machine(tmp_path):
    first = TuningStore("this one", tmp_path)
    first.keep("problem", {"plan": 3})
    first.save()
    assert TuningStore("this one", tmp_path).choices == {"problem": {"plan": 3}}
    assert TuningStore("another", tmp_path).choices == {}


def test_local_measurements_are_kept(tmp_path):
    store = TuningStore("machine", tmp_path)
    store.keep("known", "mine")
    store.learn({"known": "theirs", "new": "theirs"})
    assert store.choices == {"known": "mine", "new": "theirs"}


def test_writers_join_what_they_know(tmp_path):
    one, other = TuningStore("machine", tmp_path), TuningStore("machine", tmp_path)
    one.keep("a", "1")
    one.save()
    other.keep("b", "2")
    other.save()
    assert TuningStore("machine", tmp_path).choices == {"a": "1", "b": "2"}


def test_nothing_is_written_without_news(tmp_path):
    store = TuningStore("machine", tmp_path / "tuning")
    store.learn({"a": "1"})
    store.save()
    assert not (tmp_path / "tuning").exists()
