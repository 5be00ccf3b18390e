"""Compares what processes require with what the cluster has, since Ray waits silently for what is missing."""

from __future__ import annotations

import ray

__all__ = ["missing"]


def missing(cpus: float, gpus: float) -> str:
    """Returns which resources the whole cluster lacks, used ones included; "" if it has enough."""
    has = ray.cluster_resources()
    wanted = {"CPU": cpus, "GPU": gpus}
    found = {kind: has.get(kind, 0.0) for kind in wanted}
    return " and ".join(
        f"{n:g} {kind}s are required, of {found[kind]:g} in the cluster"
        for kind, n in wanted.items()
        if n > found[kind]
    )
