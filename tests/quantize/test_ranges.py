"""Statistics of batches that are processed one at a time."""

from __future__ import annotations

import numpy as np

from mgx_core.quantize.ranges import BINS, ROWS, Observer


def test_rows_are_kept_from_all_batches_and_of_few_batches_every_one() -> None:
    observer, batches = Observer(), np.arange(4 * 300, dtype=np.float32).reshape(300, 4, 1)
    for n, batch in enumerate(batches):
        observer.see(batch.min(0), batch.max(0), batch)
        rows = observer.rows[:, 0]
        assert len(rows) <= ROWS
        assert (np.diff(rows) > 0).all()
        if n < ROWS // 4:
            np.testing.assert_array_equal(rows, batches[: n + 1].reshape(-1))
    assert rows[0] == 0
    assert rows[-1] > 4 * 290


def test_a_batch_copies_its_own_rows_alone() -> None:
    observer, batch = Observer(), np.ones((4, 8), np.float32)
    observer.see(batch[0], batch[0], batch)
    first = observer.some[0]
    observer.see(batch[0], batch[0], batch)
    assert observer.some[0] is first


def test_the_order_of_a_sample_in_memory_changes_nothing() -> None:
    sample = np.random.default_rng(2).standard_normal((300, 7)).astype(np.float32)
    one, other = Observer(), Observer()
    one.see(sample.min(0), sample.max(0), sample)
    other.see(sample.min(0), sample.max(0), np.asfortranarray(sample))
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_allclose(one.means, other.means, rtol=1e-12)


def test_numbers_below_the_normal_range_are_counted() -> None:
    observer, sample = Observer(), np.float32([[1e-40], [-1e-40], [0], [5e-41]])
    observer.see(sample.min(0), sample.max(0), sample)
    assert observer.counts.sum() == 4
    assert observer.counts[[0, BINS // 2, BINS - 1]].tolist() == [1, 1, 1]


def test_channels_whose_number_changes_become_one() -> None:
    observer = Observer()
    batches = [np.arange(n, dtype=np.float32).reshape(-1, k) - 3 for n, k in ((8, 2), (6, 1), (15, 5), (4, 2))]
    for batch in batches:
        observer.see(batch.min(0), batch.max(0), batch)
    assert (observer.lows, observer.highs, observer.seen) == (-3, 11, 33)
    np.testing.assert_allclose(observer.means, [np.concatenate(batches, axis=None).mean()])
    assert observer.counts.sum() == 33
    assert observer.rows.shape[1] == 1
