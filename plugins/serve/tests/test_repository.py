"""Models that are loaded and unloaded while others, or they themselves, are being compiled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mgx_core import ParameterError
from mgx_serve import ModelSettings
from mgx_serve.deployment import Backend, Deployment
from mgx_serve.errors import Unavailable
from mgx_serve.metrics import Metrics
from mgx_serve.model import Signature
from mgx_serve.repository import Repository
from mgx_serve.tracing import NoTraces


class Deployed(Deployment):
    """A model that only records that it was closed."""

    def __init__(self, name: str, version: str) -> None:
        self.signature = Signature(name, version, "ref", 60.0, (), ())
        self.closed = False

    async def infer(
        self, feeds: Mapping[str, Any], priority: int = 0, timeout: float = 0.0
    ) -> tuple[Signature, list[Any]]:
        return self.signature, []

    def hurry(self) -> None: ...

    async def close(self) -> None:
        self.closed = True


class Compiling(Backend):
    """Compiles `slow` until the test ends it; `broken`: a version that cannot be compiled."""

    def __init__(self) -> None:
        self.started, self.done = asyncio.Event(), asyncio.Event()
        self.made: list[Deployed] = []
        self.broken = ""

    async def deploy(self, name: str, version: str, path: Path, settings: ModelSettings) -> Deployment:
        if name == "slow":
            self.started.set()
            await self.done.wait()
        if version == self.broken:
            raise ParameterError("no model")
        self.made.append(Deployed(name, version))
        return self.made[-1]

    async def close(self) -> None: ...


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("quick", "slow"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").touch()
    return tmp_path


def test_a_long_compile_keeps_no_other_model_waiting(root: Path) -> None:
    async def change() -> None:
        backend = Compiling()
        repository = Repository(root, ModelSettings(), Metrics(NoTraces()), backend)
        loading = asyncio.create_task(repository.load("slow"))
        await backend.started.wait()
        async with asyncio.timeout(5):
            await repository.load("quick")
            assert repository.find("quick").signature.name == "quick"
            await repository.unload("quick")
            await repository.load("quick")
        assert [m.closed for m in backend.made] == [True, False]
        backend.done.set()
        await loading
        assert repository.ready()

    asyncio.run(change())


def test_versions_are_loaded_together_or_not_at_all(root: Path) -> None:
    for version in ("2", "10"):
        (root / "quick" / version).mkdir()
        (root / "quick" / version / "model.onnx").touch()

    async def change() -> None:
        backend = Compiling()
        repository = Repository(root, ModelSettings(served=2), Metrics(NoTraces()), backend)
        await repository.load("quick")
        assert [m.signature.version for m in backend.made] == ["2", "10"]
        assert repository.find("quick").signature.version == "10"
        assert repository.find("quick", "2") is backend.made[0]
        with pytest.raises(Unavailable, match="not loaded"):
            repository.find("quick", "1")
        backend.broken = "10"
        with pytest.raises(Unavailable, match="cannot be loaded"):
            await repository.load("quick")
        assert [m.closed for m in backend.made] == [False, False, True]
        assert repository.find("quick", "2") is backend.made[0]
        await repository.unload("quick")
        assert all(m.closed for m in backend.made)

    asyncio.run(change())


def test_a_backend_with_one_version_at_a_time_reports_it(root: Path) -> None:
    (root / "quick" / "2").mkdir()
    (root / "quick" / "2" / "model.onnx").touch()

    async def change() -> None:
        backend = Compiling()
        backend.one_version = True
        with pytest.raises(Unavailable, match=r"one version of a model is served; got versions 1, 2 \(served = 1\)"):
            await Repository(root, ModelSettings(served=0), Metrics(NoTraces()), backend).load("quick")
        await Repository(root, ModelSettings(served=0, versions=(1,)), Metrics(NoTraces()), backend).load("quick")
        assert [m.signature.version for m in backend.made] == ["1"]

    asyncio.run(change())


def test_an_unload_cancels_a_load_under_way(root: Path) -> None:
    async def change() -> None:
        backend = Compiling()
        repository = Repository(root, ModelSettings(), Metrics(NoTraces()), backend)
        first = asyncio.create_task(repository.load("slow"))
        await backend.started.wait()
        unloading = asyncio.create_task(repository.unload("slow"))
        await asyncio.sleep(0)
        second = asyncio.create_task(repository.load("slow"))
        backend.done.set()
        with pytest.raises(Unavailable, match="unloaded while it was being loaded"):
            await first
        await asyncio.gather(unloading, second)
        assert [m.closed for m in backend.made] == [True, False]
        assert repository.find("slow") is backend.made[1]

    asyncio.run(change())


def test_a_version_answers_until_the_next_is_there_unless_it_is_unloaded(root: Path) -> None:
    async def change() -> None:
        backend = Compiling()
        backend.done.set()
        repository = Repository(root, ModelSettings(), Metrics(NoTraces()), backend)
        await repository.load("slow")
        backend.done.clear()
        backend.started.clear()
        loading = asyncio.create_task(repository.load("slow"))
        await backend.started.wait()
        assert repository.find("slow") is backend.made[0]
        unloading = asyncio.create_task(repository.unload("slow"))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="unloaded"):
            repository.find("slow")
        assert not backend.made[0].closed  # the load may need it until it has ended
        backend.done.set()
        with contextlib.suppress(Unavailable):
            await loading
        await unloading
        assert [m.closed for m in backend.made] == [True, True]

    asyncio.run(change())


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["model.data", "model.onnx"], "model.onnx"),
        (["model.json", "model.onnx"], "model.onnx"),
        (["model.json", "model.mxr"], "model.mxr"),
        (["model.onnx/model.onnx", "model.onnx/weights.bin"], "model.onnx/model.onnx"),
        (["model.nosuch"], "model.nosuch"),
    ],
)
def test_the_model_among_the_files_of_a_version(files: list[str], chosen: str, tmp_path: Path) -> None:
    folder = tmp_path / "m" / "1"
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()
    repository = Repository(tmp_path, ModelSettings(), Metrics(NoTraces()), Compiling())
    assert repository.entries["m"].paths == {"1": folder / chosen}


def test_a_link_out_of_the_repository_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "root" / "m" / "1").mkdir(parents=True)
    (tmp_path / "model.onnx").touch()
    (tmp_path / "root" / "m" / "1" / "model.onnx").symlink_to(tmp_path / "model.onnx")
    assert not Repository(tmp_path / "root", ModelSettings(), Metrics(NoTraces()), Compiling()).entries


def test_the_newest_of_the_versions_that_the_settings_name(root: Path) -> None:
    for version in ("2", "3"):
        (root / "quick" / version).mkdir()
        (root / "quick" / version / "model.onnx").touch()

    async def served(text: str) -> str:
        (root / "quick" / "config.pbtxt").write_text(text)
        repository = Repository(root, ModelSettings(), Metrics(NoTraces()), Compiling())
        await repository.load("quick")
        return repository.find("quick").signature.version

    assert asyncio.run(served("")) == "3"
    assert asyncio.run(served("version_policy { specific { versions: [ 1, 2, 9 ] } }")) == "2"
    with pytest.raises(Unavailable, match=r"one of versions \[9\] is required, there are \[1, 2, 3\]"):
        asyncio.run(served("version_policy { specific { versions: 9 } }"))


def test_a_model_that_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "net.v2.savedmodel"
    folder.mkdir()
    (folder / "saved_model.pb").touch()
    repository = Repository(folder, ModelSettings(), Metrics(NoTraces()), Compiling())
    assert {name: entry.paths for name, entry in repository.entries.items()} == {"net.v2": {"1": folder}}


def test_a_folder_without_models_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "model.onnx").touch()
    assert not Repository(tmp_path, ModelSettings(), Metrics(NoTraces()), Compiling()).entries
    assert f"{tmp_path} holds no model: files NAME/VERSION/model.* are required" in caplog.text


def test_a_folder_that_cannot_be_read_leaves_the_others_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder.name == "closed":  # as for any user except root, to whom folder permissions do not apply
            raise PermissionError(13, "Permission denied", str(folder))
        return whole(folder)

    (root / "closed" / "1").mkdir(parents=True)
    monkeypatch.setattr(Path, "iterdir", iterdir)
    names = set(Repository(root, ModelSettings(), Metrics(NoTraces()), Compiling()).entries)
    assert names and "closed" not in names
    assert "closed cannot be read: " in caplog.text


def test_why_a_model_cannot_be_loaded_names_no_place_of_the_server(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "quick" / "config.toml").write_text("nosuch = 1")

    async def refused() -> None:
        repository = Repository(root, ModelSettings(), Metrics(NoTraces()), Compiling())
        for ask in (repository.load("quick"), asyncio.to_thread(repository.find, "quick")):
            with pytest.raises(Unavailable, match=r"quick/config\.toml: there is no setting 'nosuch'") as caught:
                await ask
            assert str(root) not in str(caught.value)
        assert str(root) not in repository.entries["quick"].reason

    asyncio.run(refused())
    assert str(root / "quick" / "config.toml") in caplog.text  # the server's operator sees its path
