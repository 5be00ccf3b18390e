"""Execution of compiled programs: accepted arguments, ownership of memory, and instances per shape."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Argument, dim
from mgx_core import dtype as dt
from mgx_core.compile.invariants import lowered
from mgx_core.errors import DeviceError, ParameterError, PassError
from mgx_core.ops.softmax import Softmax
from mgx_core.passes.expand_composites import ExpandComposites
from mgx_core.run.executable import SPECIALIZED, Executable
from mgx_core.targets.host_runner import HostRunner
from mgx_core.types.shape import OptionalShape, SequenceShape, Shape

plans = mgx.Kernels("host")


@plans.plan()
def definition(op, shapes, context, modules=()):
    return mgx.Reference(op)


class Host(mgx.Target):
    """Runs everything with the reference implementations."""

    name = "host"

    def kernels(self, context):
        return plans


def compiled(text: str, target=None, **options) -> mgx.Program:
    program = mgx.parse_program(text)
    program.compile(target or Host(), **options)
    return program


BATCH = """
    symbol n in 1..8
    module main
      %x = @param["x"] -> float32[n, 3]
      %k = @literal(1.0, 2.0, 3.0) -> float32[3]
      %1 = multibroadcast[out_lens=[n, 3]](%k)
      %2 = add(%x, %1)
      %3 = relu(%2)
      @return(%3)"""
FIXED = BATCH.replace("symbol n in 1..8", "").replace("n, 3", "2, 3")


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x + np.float32([1, 2, 3]), 0)


# instances


def test_one_compile_serves_all_batch_sizes():
    executable = compiled(BATCH).executable
    assert executable.instances() == []
    for n in (1, 8, 1, 3):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
        np.testing.assert_array_equal(executable.run({"x": x})[0], expected(x))
    assert [i.module.output_shapes()[0].lens()[0] for i in executable.instances()] == [8, 1, 3]
    assert all(lowered(i.module) is None for i in executable.instances())


def test_fixed_programs_are_made_ready_when_compiled():
    executable = compiled(FIXED).executable
    (instance,) = executable.instances()
    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(executable.run({"x": x})[0], expected(x))
    assert executable.instances() == [instance]


def test_the_least_recently_used_instance_is_evicted():
    executable = compiled(BATCH, instances=2).executable
    for n in (1, 2, 1, 3):
        executable.run({"x": np.zeros((n, 3), np.float32)})
    assert [i.module.output_shapes()[0].lens()[0] for i in executable.instances()] == [1, 3]


@pytest.mark.parametrize(
    ("options", "own_memory", "kept"), [({}, False, 90), ({"instances": 64}, False, 64), ({}, True, 64)]
)
def test_of_small_programs_more_instances_are_kept(options: dict[str, int], own_memory: bool, kept: int):
    class Roomy(Host):
        runs_pieces = True

    Roomy.own_memory = own_memory
    executable = compiled(BATCH.replace("1..8", "1..400"), Roomy(), **options).executable
    for n in range(1, 91):
        executable.run({"x": np.zeros((n, 3), np.float32)})
    assert len(executable.instances()) == kept


def test_of_large_programs_the_usual_number_of_instances_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mgx_core.run.executable.INSTRUCTIONS", 70)
    executable = compiled(BATCH.replace("1..8", "1..400")).executable
    for n in range(1, 91):
        executable.run({"x": np.zeros((n, 3), np.float32)})
    assert len(executable.instances()) == 64


def test_strides_do_not_make_another_instance():
    executable = compiled(BATCH).executable
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(executable.run({"x": x})[0], expected(x))
    executable.run({"x": x.copy()})
    assert len(executable.instances()) == 1


def test_several_threads():
    executable = compiled(BATCH, instances=2).executable
    barrier = threading.Barrier(4)

    def work(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        barrier.wait()
        for _ in range(25):
            x = rng.normal(size=(rng.integers(1, 9), 3)).astype(np.float32)
            if not np.array_equal(executable.run({"x": x})[0], expected(x)):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert len(executable.instances()) == 2


def test_threads_with_the_same_new_shape_wait_for_one_instance():
    made: list[int] = []
    all_ask = threading.Barrier(4)

    class Slow(Host):
        def runner(self, module, plan, context, options):
            made.append(module.parameters["x"].shape.lens()[0])
            time.sleep(0.1)  # the other threads request it meanwhile
            return super().runner(module, plan, context, options)

    executable = compiled(BATCH, Slow()).executable

    def work(rows: int) -> bool:
        x = np.ones((rows, 3), np.float32)
        all_ask.wait(10)
        return np.array_equal(executable.run({"x": x})[0], expected(x))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [2, 2, 2, 5]))
    assert sorted(made) == [2, 5]


def test_instances_are_inspected_while_others_are_created():
    executable = compiled(BATCH, instances=4).executable
    done = threading.Event()

    def look() -> int:
        seen = 0
        while not done.is_set():
            seen = max(seen, len(executable.instances()))
        return seen

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            looking = [pool.submit(look) for _ in range(2)]
            try:
                for n in range(200):
                    executable.run({"x": np.ones((1 + n % 8, 3), np.float32)})
            finally:
                done.set()
            assert [f.result() for f in looking] == [4, 4]
    finally:
        sys.setswitchinterval(before)


# accepted arguments


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1], r"run takes a mapping from parameter names \('x'\) to values, got a value of type list"),
        ({}, r"parameter 'x' \(float32\[n, 3\]\) is missing"),
        ({"x": np.zeros((2, 3), np.float32), "y": 1}, "there is no parameter 'y'; known are 'x'"),
        ({"x": np.zeros((2, 3))}, r"parameter 'x' must be float32\[n, 3\] with n in 1..8, got float64\[2, 3\]"),
        ({"x": np.zeros((2, 4), np.float32)}, r"must be float32\[n, 3\] with n in 1..8, got float32\[2, 4\]"),
        ({"x": np.zeros((9, 3), np.float32)}, r"got float32\[9, 3\]"),
        ({"x": np.zeros((0, 3), np.float32)}, r"got float32\[0, 3\]"),
        ({"x": np.zeros(3, np.float32)}, r"got float32\[3\]"),
        ({"x": None}, "with n in 1..8, got None$"),
        ({"x": "text"}, r"got string\[\]"),
        ({"x": (np.zeros((2, 3), np.float32),)}, "got "),
        ({"x": [[1, 2, 3], [4, 5]]}, "got a nested list of unequal lengths"),
        ({"x": [["a", "b", "c"]]}, "got <U1 values"),
        ({"x": object()}, r"parameter 'x' must be float32\[n, 3\] with n in 1..8: object is not a tensor"),
    ],
)
def test_wrong_parameters(given, message):
    executable = compiled(BATCH).executable
    with pytest.raises(ParameterError, match=message):
        executable.run(given)


def test_anything_that_holds_a_tensor_will_do():
    executable = compiled(BATCH).executable
    x = np.float32([[-1, -2, -4]])
    for given in (x, mgx.Argument(x), x.tolist(), [[-1, -2, -4]], memoryview(x), x[::-1]):
        assert executable.run({"x": given})[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("type", "given", "message"),
    [
        ("int8", [1.5], "got float64 values"),
        ("int8", [127, 128], "got values from 127 to 128"),
        ("uint4", [-1], "got values from -1 to -1"),
        ("bool", [2], "got int64 values"),
        ("bf16", [1j], "got complex128 values"),
    ],
)
def test_numbers_are_not_bent_into_another_type(type, given, message):
    program = mgx.Program()
    main = program.get_main_module()
    main.add_return([main.add_parameter("x", Shape(type, [len(given)]))])
    program.compile(Host())
    with pytest.raises(ParameterError, match=message):
        program.run({"x": given})


@pytest.mark.parametrize(
    ("type", "given"), [("int8", [1, True]), ("bf16", [1, 2]), ("float8_e4m3fn", [0.5, 2]), ("bool", [True, False])]
)
def test_numbers_adopt_the_parameters_type(type, given):
    program = mgx.Program()
    main = program.get_main_module()
    main.add_return([main.add_parameter("x", Shape(type, [2]))])
    program.compile(Host())
    (got,) = program.run({"x": given})
    assert got.get_shape().dtype is dt.of(type)
    assert [float(v) for v in got.tolist()] == [float(v) for v in given]


def test_extents_that_share_a_symbol_must_agree():
    text = """
        symbol n in 1..8
        module main
          %z = @param["z"] -> float32[2*n]
          %x = @param["x"] -> float32[n]
          %y = @param["y"] -> float32[n]
          %1 = add(%x, %y)
          @return(%1, %z)"""
    executable = compiled(text).executable
    one, two, four = (np.ones(k, np.float32) for k in (1, 2, 4))
    assert executable.run({"x": two, "y": two, "z": four})[0].tolist() == [2, 2]
    with pytest.raises(ParameterError, match=r"parameter 'y': axis 0 \(n\) must be 2 as elsewhere, got 1"):
        executable.run({"x": two, "y": one, "z": four})
    with pytest.raises(ParameterError, match=r"parameter 'z': axis 0 \(2\*n\) must be 4 as elsewhere, got 2"):
        executable.run({"x": two, "y": two, "z": two})


def test_an_extent_of_one_symbol_decides_it():
    text = """
        symbol n in 1..8
        symbol k in 1..8
        module main
          %x = @param["x"] -> float32[3*n+1]
          %y = @param["y"] -> float32[2*n+k]
          @return(%x, %y)"""
    executable = compiled(text).executable
    seven, five, three = (np.ones(k, np.float32) for k in (7, 5, 3))
    assert [r.get_shape().lens() for r in executable.run({"x": seven, "y": five})] == [[7], [5]]
    with pytest.raises(ParameterError, match=r"parameter 'x': axis 0 \(3\*n\+1\) is 5 for no n from 1 to 8"):
        executable.run({"x": five, "y": five})
    with pytest.raises(ParameterError, match=r"parameter 'y': axis 0 \(k\+2\*n\) is 3 for no k from 1 to 8"):
        executable.run({"x": seven, "y": three})


def test_an_extent_that_its_other_symbols_do_not_allow_is_refused():
    text = """
        symbol n in 1..8
        symbol m in 1..3
        module main
          %x = @param["x"] -> float32[(n//m)]
          %y = @param["y"] -> float32[m]
          @return(%x, %y)"""
    executable = compiled(text).executable
    six, three, two = (np.ones(k, np.float32) for k in (6, 3, 2))
    assert [r.get_shape().lens() for r in executable.run({"x": two, "y": three})] == [[2], [3]]
    with pytest.raises(ParameterError, match=r"'x': axis 0 \(\(n//m\)\) must be \(n//3\), which is 0 to 2, got 6"):
        executable.run({"x": six, "y": three})


def test_sequences_and_optionals():
    program = mgx.Program()
    main = program.get_main_module()
    s = main.add_parameter("s", SequenceShape(Shape.unranked(dt.float32)))
    o = main.add_parameter("o", OptionalShape(Shape("float", [2])))
    main.add_return([main.add(mgx.op("sequence_length"), s), main.add(mgx.op("optional_has_element"), o)])
    program.compile(Host())
    a = np.ones(2, np.float32)
    assert [r.value.item() for r in program.run({"s": [a, a[:1]], "o": None})] == [2, False]
    assert [r.value.item() for r in program.run({"s": (), "o": a})] == [0, True]
    with pytest.raises(ParameterError, match="parameter 's' must be sequence"):
        program.run({"s": [np.zeros(2)], "o": None})
    with pytest.raises(ParameterError, match="parameter 'o' must be optional"):
        program.run({"s": [], "o": np.zeros(3, np.float32)})


# ownership of memory


def test_results_own_their_memory():
    text = """
        module main
          %x = @param["x"] -> float32[2, 3]
          %k = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0) -> float32[2, 3]
          %1 = relu(%x)
          %2 = transpose[permutation=[1, 0]](%1)
          @return(%x, %k, %1, %1, %2)"""
    program = compiled(text)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = program.run({"x": x})
    arrays = [r.to_numpy() for r in first]
    for i, a in enumerate(arrays):
        assert a.flags.writeable
        assert a.flags.c_contiguous
        assert not np.shares_memory(a, x)
        assert not any(np.shares_memory(a, b) for b in arrays[i + 1 :])
    for a in arrays:
        a[...] = -1
    assert x[1, 2] == 5
    again = program.run({"x": x})
    assert again[1].tolist() == [1, 2, 3, 4, 5, 6]
    assert again[3].tolist() == [0, 1, 2, 3, 4, 5]
    assert again[4].tolist() == [0, 3, 1, 4, 2, 5]


def test_results_keep_their_type():
    text = 'module main\n  %x = @param["x"] -> bfloat16[2]\n  %1 = neg(%x)\n  @return(%1)'
    (got,) = compiled(text).run({"x": np.array([1, 2], ml_dtypes.bfloat16)})
    assert got.to_numpy().dtype == ml_dtypes.bfloat16


# compiling


def test_compile_accepts_targets_and_contexts_without_changing_the_program():
    program = mgx.parse_program(FIXED)
    text = program.text()
    target = Host()
    context = target.get_context()
    program.compile(context)
    assert program.executable.context is context
    assert program.executable.target is target
    assert program.graph.main.text() == text
    with pytest.raises(
        ParameterError, match=r"compile takes a target or a context, got 'host': pass get_target\('host'\)"
    ):
        program.compile("host")
    assert program.is_compiled()


def test_a_failed_compile_leaves_the_program_as_it_was():
    class Broken(Host):
        def passes(self, stage, context, options):
            class Break(mgx.Pass):
                name = "break"

                def apply(self, module):
                    module.outputs[0].result = Shape("float", [7])
                    return False

            return [Break()] if stage == "legalize" else []

    program = mgx.parse_program(FIXED)
    text = program.text()
    with pytest.raises(PassError, match="pass 'break' of stage 'legalize'"):
        program.compile(Broken(), validate=True)
    assert not program.is_compiled()
    assert program.text() == text


def test_a_program_that_reads_missing_memory_is_rejected():
    cyclic = mgx.parse_program(FIXED)
    main = cyclic.get_main_module()
    broadcast, add, relu = [i for i in main if i.name in ("multibroadcast", "add", "relu")]
    main.set_inputs(add, [relu, broadcast])
    with pytest.raises(ParameterError, match=r"module 'main': add\(.*\).* reads relu\(.*\).*, which comes after it"):
        cyclic.compile(Host())
    stranger = mgx.Program()
    taken = mgx.Program().get_main_module().add_parameter("x", Shape("float", [2]))
    stranger.get_main_module().add(mgx.op("relu"), taken)
    with pytest.raises(ParameterError, match="which is in no module around it"):
        stranger.compile(Host())


def test_lowering_that_leaves_an_op_is_an_error():
    class Lazy(Host):
        def passes(self, stage, context, options):
            class Undo(mgx.Pass):
                name = "undo"

                def apply(self, module):
                    for ins in module:
                        if ins.name == "launch":
                            ins.op = ins.op.of
                    return True

            return [Undo()] if stage == "lower" else []

    with pytest.raises(PassError, match=r"after stage 'lower': .* is left"):
        compiled(FIXED, Lazy())


def test_a_targets_own_runner():
    class Constant(mgx.Runner):
        def run(self, args):
            return [args[0] * 0 + 7]

    class Mine(Host):
        def runner(self, module, plan, context, options):
            assert plan.peak >= plan.lower_bound
            return Constant()

    program = compiled(BATCH, Mine())
    assert program.run({"x": np.zeros((1, 3), np.float32)})[0].tolist() == [7, 7, 7]
    with pytest.raises(ParameterError, match="target 'host' does not time instructions"):
        program.executable.time({"x": np.zeros((1, 3), np.float32)})


def test_times_per_instruction():
    executable = compiled(BATCH, optimize=False).executable
    timings = executable.time({"x": np.zeros((2, 3), np.float32)}, runs=4, warmup=1)
    assert [t.instruction.op.of.name for t in timings] == ["multibroadcast", "add", "relu"]
    assert all(len(t.seconds) == 4 and min(t.seconds) >= 0 for t in timings)


def test_control_flow_stays_and_its_modules_are_lowered():
    text = """
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[2]
          %1 = if(%c){then, else}
          %2 = get_tuple_elem[index=0](%1)
          @return(%2)
        module then
          %3 = neg(%x)
          @return(%3)
        module else
          @return(%x)"""
    program = compiled(text)
    (instance,) = program.executable.instances()
    branch = next(i for i in instance.module if i.name == "if")
    assert [i.name for i in branch.modules[0]] == ["launch", "@return"]
    x = np.float32([1, 2])
    assert program.run({"c": np.array(True), "x": x})[0].tolist() == [-1, -2]
    assert program.run({"c": False, "x": x})[0].tolist() == [1, 2]


def test_values_known_while_running_reach_attributes():
    text = """
        symbol n?0 in 0..4
        module main
          %x = @param["x"] -> float32[4]
          %one = @literal(10) -> int64[1]
          %1 = nonzero(%x) -> int64[1, n?0]
          %2 = multibroadcast[out_lens=[1, n?0]](%one) -> int64[1, n?0]
          %3 = add(%1, %2) -> int64[1, n?0]
          @return(%3)"""
    program = compiled(text)
    assert program.run({"x": np.float32([0, 1, 0, 2])})[0].tolist() == [11, 13]
    assert program.run({"x": np.float32([1, 1, 1, 1])})[0].tolist() == [10, 11, 12, 13]


def test_extents_that_do_not_fit_are_refused_with_the_node():
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [dim.symbol("n")]))
    main.add_return([main.add(mgx.op("topk", k=3, axis=0), x, sources=["best"])])
    program.compile(Host())
    with pytest.raises(mgx.ShapeError, match=r"^node 'best': topk.*k must lie in \[0, 2\]"):
        program.run({"x": np.zeros(2, np.float32)})


def test_running_before_compiling():
    with pytest.raises(ParameterError, match="the program is not compiled"):
        mgx.parse_program(FIXED).run({})


def test_executables_stand_alone():
    program = mgx.parse_program(FIXED)
    executable = Executable(program.graph.main, Host(), Host().get_context(), mgx.CompileOptions(), ["y"])
    assert executable.output_names == ["y"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(executable.run({"x": x})[0], expected(x))


# arguments that were used before


def test_arrays_like_those_before_are_not_checked_again(monkeypatch):
    program = compiled(BATCH)
    x = np.float32([[1, -2, 3], [4, 5, -6]])
    np.testing.assert_array_equal(program.run({"x": x})[0], expected(x))
    monkeypatch.setattr(Executable, "bind", lambda *given: pytest.fail("checked again"))
    np.testing.assert_array_equal(program.run({"x": 2 * x})[0], expected(2 * x))


def test_strings_like_those_before_are_not_checked_again(monkeypatch):
    program = compiled(
        """
        module main
          %x = @param["x"] -> string[2]
          %1 = convert[target_type=int64](%x)
          @return(%1)"""
    )
    words = np.array(["1", "20"], object)
    assert program.run({"x": words})[0].tolist() == [1, 20]
    bind = Executable.bind
    monkeypatch.setattr(Executable, "bind", lambda *given: pytest.fail("checked again"))
    assert program.run({"x": np.array(["3", "4"], object)})[0].tolist() == [3, 4]
    monkeypatch.setattr(Executable, "bind", bind)
    assert program.run({"x": np.array([b"5", "6"], object)})[0].tolist() == [5, 6]
    with pytest.raises(ParameterError, match="strings are required, got an element of type int"):
        program.run({"x": np.array(["7", 8], object)})


def test_arrays_unlike_those_before_are_checked():
    program = compiled(BATCH)
    x = np.float32([[1, -2, 3], [4, 5, -6]])
    program.run({"x": x})
    for other, said in (
        (x.astype(np.int32), "int32"),
        (x[:, :2].copy(), r"\[2, 2\]"),
        (np.zeros((9, 3), np.float32), "n in 1..8"),
    ):
        with pytest.raises(ParameterError, match=said):
            program.run({"x": other})
    with pytest.raises(ParameterError, match="no parameter 'y'"):
        program.run({"x": x, "y": x})
    for other in (x.astype(">f4"), np.asfortranarray(x), x[::-1], x.tolist()):
        np.testing.assert_array_equal(program.run({"x": other})[0], expected(np.asarray(other, np.float32)))


def test_known_arguments_do_not_keep_evicted_instances():
    program = compiled(BATCH, instances=2)
    executable = program.executable
    one, two, three = (np.ones((n, 3), np.float32) for n in (1, 2, 3))
    for x in (one, two, one, three, one):  # each use of a cached entry counts: the second is the oldest
        np.testing.assert_array_equal(program.run({"x": x})[0], expected(x))
    assert {i.shapes["x"].lens()[0] for i in executable.instances()} == {1, 3}
    first = executable.instances()[-1]
    for x in (two, three):
        program.run({"x": x})
    program.run({"x": one})
    assert first not in executable.instances() and len(executable.instances()) == 2


def test_arguments_that_were_checked_are_run_as_their_arrays(monkeypatch):
    program = compiled(BATCH)
    executable, x = program.executable, np.ones((2, 3), np.float32)
    checked = []
    bind = type(executable).bind
    monkeypatch.setattr(type(executable), "bind", lambda self, given: checked.append(given) or bind(self, given))
    for given in (x, Argument(x), Argument(x), x):
        np.testing.assert_array_equal(program.run({"x": given})[0], expected(x))
    assert len(checked) == 1
    program.run({"x": Argument(np.asfortranarray(x))})
    assert len(checked) == 2


@pytest.mark.parametrize(
    ("add", "extents", "message"),
    [
        (
            lambda main, x: main.add(mgx.op("pooling", mode="max", lengths=[5], stride=[1]), x, sources=["pool1"]),
            [1, 2, 3],
            r"node 'pool1': pooling.*a window over 5 elements does not fit on an axis of 3",
        ),
        (
            lambda main, x: main.add(
                mgx.op("stft", frame_step=2, frame_length=6),
                main.add(mgx.op("reshape", dims=[1, dim.symbol("m"), 1]), main.add(mgx.op("reduce_sum", axes=[2]), x)),
                sources=["frames"],
            ),
            [1, 3, 2],
            r"node 'frames': stft.*a frame of 6 does not fit a signal of 3",
        ),
        (
            lambda main, x: main.add(
                mgx.op("multibroadcast", out_lens=[1, 2, dim.broadcast(dim.symbol("n"), dim.symbol("m"))]),
                main.add_literal(np.float32(1)),
                sources=["add2"],
            ),
            [1, 5, 3],
            r"node 'add2': extents 5 and 3 do not broadcast",
        ),
    ],
    ids=["window", "frame", "broadcast"],
)
def test_a_run_names_the_node_that_its_extents_do_not_fit(add, extents, message):
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [1, dim.symbol("m"), dim.symbol("n")]))
    main.add_return([x, add(main, x)])
    program.compile(Host())
    program.run({"x": np.zeros((1, 8, 8), np.float32)})
    with pytest.raises(mgx.ShapeError, match=message):
        program.run({"x": np.zeros(extents, np.float32)})


def open_matrices(op, nodes):
    """Returns a program of one op on two matrices with symbolic extents."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [dim.symbol("a"), dim.symbol("b")]))
    y = main.add_parameter("y", mgx.Shape("float32", [dim.symbol("c"), dim.symbol("d")]))
    main.add_return([main.add(op, x, y, sources=nodes)])
    program.compile(Host())
    return program


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (mgx.op("dot"), r"^node 'n1': dot.*the last extent of a must equal the last but one of b"),
        (mgx.op("concat", axis=1), r"^node 'n1': concat.*extents off axis 1 must be equal, got 2 and 4"),
    ],
    ids=["dot", "concat"],
)
def test_open_extents_that_an_op_requires_to_be_equal_are_checked_in_each_run(op, message):
    program = open_matrices(op, ["n1"])
    program.run({"x": np.ones((3, 3), np.float32), "y": np.ones((3, 3), np.float32)})
    with pytest.raises(mgx.ShapeError, match=message):
        program.run({"x": np.ones((2, 3), np.float32), "y": np.ones((4, 5), np.float32)})


def test_extents_of_a_branch_that_is_not_taken_may_be_unequal():
    text = """
        symbol b in 1..8
        symbol d in 1..8
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[2, b]
          %y = @param["y"] -> float32[d, 2]
          %z = @param["z"] -> float32[2, 2]
          %1 = if(%c){then, else}
          %2 = get_tuple_elem[index=0](%1)
          @return(%2)
        module then
          %3 = dot(%x, %y)
          @return(%3)
        module else
          %4 = neg(%z)
          @return(%4)"""
    program = compiled(text)
    given = {"x": np.ones((2, 3), np.float32), "z": np.ones((2, 2), np.float32)}
    (product,) = program.run({**given, "c": True, "y": np.ones((3, 2), np.float32)})
    (other,) = program.run({**given, "c": False, "y": np.ones((5, 2), np.float32)})
    assert (product.tolist(), other.tolist()) == ([3] * 4, [-1] * 4)


# a subset of the results


SEVERAL = """
    symbol n in 1..8
    module main
      %x = @param["x"] -> float32[n]
      %1 = add(%x, %x)
      %2 = neg(%x)
      %3 = mul(%x, %x)
      @return(%1, %2, %3)"""


class Picking(Host):
    """Records the requested results; for a subset, results are caller-owned arguments if `lends` says so."""

    def __init__(self, lends: bool = False, drops: bool = False) -> None:
        self.asked: list[list[int] | None] = []
        self.lends, self.drops = lends, drops

    def runner(self, module, plan, context, options):
        target = self

        class Runner(HostRunner):
            def run(self, args, observe=None):
                target.asked.append(None)
                return super().run(args, observe)

            def run_some(self, args, wanted):
                target.asked.append(list(wanted))
                whole = super().run(args)
                return [] if target.drops else [args[0] if target.lends else whole[n] for n in wanted]

        return Runner(module)


def test_a_runner_learns_which_results_are_wanted():
    target = Picking()
    program = compiled(SEVERAL, target)
    x = np.float32([1, 2])
    for _ in range(2):  # all results of the first run are checked
        negated, doubled = program.run({"x": x}, outputs=["output_1", "output_0"])
        assert (negated.tolist(), doubled.tolist()) == ([-1, -2], [2, 4])
    assert program.run({"x": x[:1]}, outputs=["output_2"])[0].tolist() == [1]
    assert [a.tolist() for a in program.run({"x": x})] == [[2, 4], [-1, -2], [1, 4]]
    assert target.asked == [None, [1, 0], None, None]


def test_some_results_own_their_memory():
    program = compiled(SEVERAL, Picking(lends=True))
    x = np.float32([1, 2])
    program.run({"x": x})
    (given,) = program.run({"x": x}, outputs=["output_0"])
    assert not np.shares_memory(given.to_numpy(), x)


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ((["y"], {"x": [1, 2]}), "a mapping"),
        (([1, 2], 3), "a value of type int"),
        (({"x": [1, 2]}, "output_0"), "a value of type str"),
    ],
)
def test_outputs_that_are_no_list_of_names(given, got):
    program = compiled(SEVERAL, Picking())
    message = rf"takes the parameters first.*got {got} as outputs: call run\(parameters, outputs=\[...\]\)"
    with pytest.raises(ParameterError, match=message):
        program.run(*given)


def test_a_runner_that_returns_too_few_results_is_named():
    program = compiled(SEVERAL, Picking(drops=True))
    program.run({"x": np.float32([1])})
    with pytest.raises(mgx.PluginError, match=r"run_some .* must return 1 value,"):
        program.run({"x": np.float32([1])}, outputs=["output_0"])


@pytest.mark.parametrize(
    ("outputs", "words"),
    [(["y"], "no output 'y'; known are 'output_0', 'output_1', 'output_2'"), (["output_0"] * 2, "at most once")],
)
def test_outputs_that_cannot_be_requested(outputs, words):
    with pytest.raises(ParameterError, match=words):
        compiled(SEVERAL).run({"x": np.float32([1])}, outputs=outputs)


def test_states_advance_even_without_requested_results():
    program = mgx.Program(states={"state": np.zeros(2, np.float32)})
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2]))
    total = main.add(mgx.op("add"), x, main.add_parameter("state", Shape("float32", [2])))
    main.add_return([main.add(mgx.op("neg"), total), total])
    program.compile(Host())
    one = {"x": np.ones(2, np.float32)}
    assert [program.run(one, outputs=[]) for _ in range(3)] == [[], [], []]
    assert program.run(one, outputs=["output_0"])[0].tolist() == [-4, -4]
    with pytest.raises(ParameterError, match="no output 'output_1'"):
        program.run(one, outputs=["output_1"])


def test_programs_with_states_accept_only_mappings() -> None:
    program = mgx.Program(states={"state": np.zeros(2, np.float32)})
    main = program.get_main_module()
    state = main.add_parameter("state", Shape("float32", [2]))
    main.add_return([main.add(mgx.op("neg"), state), state])
    program.compile(Host())
    for _ in range(2):  # with the initial states, and with those returned by a run
        for call in (program.run, program.dry_run, program.run_async):
            with pytest.raises(ParameterError, match="run takes a mapping from parameter names"):
                call([1])
        program.run({})


def test_a_compile_that_fails_leaves_states_as_they_are() -> None:
    program = mgx.Program(states={"state": np.zeros(2, np.float32)})
    main = program.get_main_module()
    state = main.add_parameter("state", mgx.Shape("float", [2]))
    more = main.add(mgx.op("add"), state, main.add_literal(np.ones(2, np.float32)))
    main.add_return([more, more])
    program.compile(mgx.get_target("ref"))
    program.run({})
    with pytest.raises(ParameterError):
        program.compile(mgx.get_target("ref"), assignment={})
    assert np.array_equal(np.asarray(program.run({})[0]), [2, 2])


class Spelling(Host):
    """Decomposes softmax, so that its parts are grouped with what surrounds them."""

    def passes(self, stage, context, options):
        return (ExpandComposites(frozenset({Softmax})),) if stage == "legalize" else ()


@pytest.mark.parametrize("times", [1, 2])
def test_a_program_that_was_optimized_before_compiles_to_the_same(times):
    text = """module main
      %x = @param["x"] -> float32[4, 8]
      %1 = relu(%x)
      %2 = tanh(%1)
      %3 = softmax(%2)
      @return(%3)"""
    program = mgx.parse_program(text)
    for _ in range(times):
        program = mgx.optimize(program)
    assert [i.name for i in program.get_main_module() if i.modules] == ["pointwise"]
    program.compile(Spelling())
    plain = compiled(text, Spelling()).executable
    assert [i.name for i in plain.module if i.modules] == ["fused_reduce"]
    assert str(program.executable.module) == str(plain.module)


def test_a_run_returns_its_results_if_the_program_cannot_be_cut_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("neg"), m.add_parameter("x", Shape(dt.float32, [2])))])
    monkeypatch.setattr(HostRunner, "specialized", SPECIALIZED + 1)
    monkeypatch.setattr(Host, "own_memory", True)
    monkeypatch.setattr(Host, "opens_programs", True)
    monkeypatch.setattr("mgx_core.run.device_pieces.DeviceMemory", lambda *_: None)

    def refused(*_: object) -> None:
        raise DeviceError("out of memory")

    monkeypatch.setattr("mgx_core.run.open_pieces.OpenPieces.program", refused)
    program.compile(Host())
    for _ in range(2):
        (found,) = program.run({"x": np.float32([1, 2])})
        np.testing.assert_array_equal(found.to_numpy(), [-1, -2])
