"""AMD's module installed in another folder."""

from __future__ import annotations

import os
import subprocess
import sys


def imported(folder, **environment):
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.append({str(folder)!r}); import migraphx; print(migraphx.op('add'))",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_ours_does_not_hide_theirs(tmp_path) -> None:
    theirs = tmp_path / "migraphx.abi3.so"
    theirs.write_bytes(b"")
    refused = imported(tmp_path)
    assert refused.returncode
    assert f"AMD's module migraphx is installed at {theirs}" in refused.stderr
    assert "set MGX_MIGRAPHX=1" in refused.stderr
    assert imported(tmp_path, MGX_MIGRAPHX="1").stdout == "add\n"


def test_it_alone(tmp_path) -> None:
    assert imported(tmp_path).stdout == "add\n"
