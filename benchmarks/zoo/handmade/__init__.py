"""Small hand-written networks, of kinds that no list of architectures contains."""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    agents,
    fields,
    generators,
    images,
    languages,
    lookups,
    mixers,
    others,
    pictures,
    relations,
    scenes,
    sequences,
    sounds,
    tables,
)
from .parts import Network

__all__ = ["NETWORKS", "Network"]

NETWORKS: Mapping[str, Network] = {
    **images.NETWORKS,
    **generators.NETWORKS,
    **sequences.NETWORKS,
    **others.NETWORKS,
    **lookups.NETWORKS,
    **mixers.NETWORKS,
    **languages.NETWORKS,
    **sounds.NETWORKS,
    **scenes.NETWORKS,
    **tables.NETWORKS,
    **agents.NETWORKS,
    **fields.NETWORKS,
    **pictures.NETWORKS,
    **relations.NETWORKS,
}
