"""The store of tuning results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.targets.tuning import BLOCK, TuningStore, random_operand


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


@pytest.mark.parametrize("of", ["float8_e4m3fn", "float16", "int8", "bool"])
def test_few_numbers_are_drawn_for_an_operand_of_millions(of):
    """Rounding 25 million numbers to 8-bit floats took 0.7 s, for each kernel that was timed."""
    made = random_operand(dt.of(of), 2 * BLOCK + 3)
    assert made.dtype == dt.of(of).numpy and made.shape == (2 * BLOCK + 3,)
    np.testing.assert_array_equal(made[BLOCK:], made[: BLOCK + 3])
    assert len(np.unique(made.astype(np.float32))) > 1
    np.testing.assert_array_equal(random_operand(dt.of(of), 5), random_operand(dt.of(of), 5))
