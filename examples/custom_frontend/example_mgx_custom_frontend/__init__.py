"""A frontend for files that end with ``.layers.json``."""

from mgx_core import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def frontends() -> list[Lazy]:
    return [Lazy("layers.json", "example_mgx_custom_frontend.frontend:LayersFrontend", "perceptrons as JSON")]
