"""BLAS plans: constants, problems, and the arguments of the vendor's functions, on a recording fake."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from mgx_core import dtype
from mgx_core.errors import DeviceError, No, ParameterError
from mgx_gpu_hip.library import Activation, GemmProblem, Libraries, Matrix
from mgx_gpu_hip.library.blas_constants import CUBLASLT, HIPBLASLT, BlasTable
from mgx_gpu_hip.library.gemm import Blas, GemmPlan

RELU = Activation("relu")


class FakeBlas:
    """Fakes cublasLt or hipBLASLt: returns handles, stores attributes, offers `offers` algorithms, records products."""

    def __init__(self, table: BlasTable, offers: int = 2) -> None:
        self.table = table
        self.offers = offers
        self.alive: dict[int, str] = {}
        self.attributes: dict[int, dict[int, int]] = {}
        self.layouts: dict[int, tuple[int, int, int, int]] = {}
        self.preferences: list[dict[int, int]] = []
        self.products: list[tuple[Any, ...]] = []
        self.fail: dict[str, int] = {}
        self.checked: list[tuple[int, int, list[tuple[int, int, int]]]] = []
        self.state = 0  # of an algorithm that is checked
        self.next = 0x100

    def __getattr__(self, name: str) -> Any:
        prefix = self.__dict__["table"].prefix
        if not name.startswith(prefix):
            raise AttributeError(name)
        word = name.removeprefix(prefix)

        def call(*args: Any) -> int:
            if word in self.fail:
                return self.fail[word]
            return int(getattr(self, "do_" + word)(*args) or 0)

        return call

    def give(self, pointer: Any, kind: str) -> int:
        self.next += 1
        pointer.contents.value = self.next
        self.alive[self.next] = kind
        self.attributes[self.next] = {}
        return self.next

    def do_Create(self, pointer: Any) -> None:
        self.give(pointer, "handle")

    def do_GetVersion(self, *args: Any) -> int:
        if args:
            args[1].contents.value = 70
            return 0
        return 130100

    def do_Destroy(self, handle: Any) -> None:
        del self.alive[handle.value]

    do_MatmulDescDestroy = do_MatrixLayoutDestroy = do_Destroy

    def do_MatmulPreferenceDestroy(self, preference: Any) -> None:
        self.preferences.append(self.attributes[preference.value])
        self.do_Destroy(preference)

    def do_MatmulDescCreate(self, pointer: Any, compute: int, scale: int) -> None:
        self.attributes[self.give(pointer, "desc")] |= {-1: compute, -2: scale}

    def do_MatrixLayoutCreate(self, pointer: Any, kind: int, rows: int, columns: int, ld: int) -> None:
        self.layouts[self.give(pointer, "layout")] = (kind, rows, columns, ld)

    def do_MatmulPreferenceCreate(self, pointer: Any) -> None:
        self.give(pointer, "preference")

    def put(self, handle: Any, attribute: int, value: Any, size: int) -> None:
        assert ctypes.sizeof(value.contents) == size
        self.attributes[handle.value][attribute] = value.contents.value

    do_MatmulDescSetAttribute = do_MatrixLayoutSetAttribute = do_MatmulPreferenceSetAttribute = put

    def do_MatmulAlgoGetHeuristic(
        self,
        handle: Any,
        desc: Any,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        preference: Any,
        count: int,
        results: Any,
        found: Any,
    ) -> None:
        found.contents.value = min(count, self.offers)
        for i in range(found.contents.value):
            results[i].algorithm[0] = 7 + i
            results[i].workspace = 1024 * i

    def do_MatmulAlgoCheck(
        self, handle: Any, desc: Any, a: Any, b: Any, c: Any, d: Any, algorithm: Any, result: Any
    ) -> None:
        self.checked.append((desc.value, algorithm[0], [self.layouts[x.value][1:] for x in (a, b, d)]))
        result.contents.workspace, result.contents.state = 512, self.state

    def do_Matmul(self, *args: Any) -> None:
        self.products.append(args)


def made(table: BlasTable = CUBLASLT, **more: Any) -> tuple[FakeBlas, Blas]:
    fake = FakeBlas(table, **more)
    return fake, Blas(table, fake)


def test_the_vendors_differ_where_their_headers_do() -> None:
    assert (CUBLASLT.operation, HIPBLASLT.operation) == ((0, 1), (111, 112))
    assert (CUBLASLT.compute["f32"], HIPBLASLT.compute["f32"]) == (68, 2)
    assert (CUBLASLT.desc["epilogue"], HIPBLASLT.desc["epilogue"]) == (7, 2)
    assert (CUBLASLT.algo_bytes, HIPBLASLT.algo_bytes) == (64, 24)
    assert all(HIPBLASLT.epilogues[key] == number for key, number in CUBLASLT.epilogues.items())
    assert set(CUBLASLT.layout) == set(HIPBLASLT.layout) and set(CUBLASLT.desc) == set(HIPBLASLT.desc)


@pytest.mark.parametrize("table", [CUBLASLT, HIPBLASLT], ids=lambda t: t.name)
def test_a_row_major_product_is_passed_as_its_transpose(table: BlasTable) -> None:
    fake, blas = made(table)
    plan = blas.plan(GemmProblem.packed(8, 16, 32, b_transposed=True, epilogue=("bias", RELU)))
    assert not isinstance(plan, No)
    plan.launch(0x51, a=0xA0, b=0xB0, d=0xD0, bias=0xE0)
    handle, desc, alpha, a, a_layout, b, b_layout, beta, c, _, d, d_layout, algorithm, space, size, stream = (
        fake.products[0]
    )
    assert (handle.value, a, b, c, d, space, size, stream) == (blas.handle.value, 0xB0, 0xA0, 0xD0, 0xD0, None, 0, 0x51)
    assert (alpha.contents.value, beta.contents.value) == (1.0, 0.0)
    assert fake.layouts[a_layout.value] == (2, 32, 16, 32)  # b, stored as [n, k]: column-major [k, n]
    assert fake.layouts[b_layout.value] == (2, 32, 8, 32)
    assert fake.layouts[d_layout.value] == (2, 16, 8, 16)
    plain, turned = table.operation
    assert fake.attributes[desc.value] == {
        -1: table.compute["f32"], -2: 0, table.desc["trans_a"]: turned, table.desc["trans_b"]: plain,
        table.desc["epilogue"]: 6, table.desc["bias_type"]: 2, table.desc["bias_pointer"]: 0xE0,
    }  # fmt: skip
    assert bytes(algorithm)[0] == 7 and len(bytes(algorithm)) == table.algo_bytes


def test_a_batch_keeps_its_strides_and_a_shared_operand_has_stride_zero() -> None:
    fake, blas = made()
    plan = blas.plan(GemmProblem.packed(8, 16, 32, batch=3, a_transposed=True, b_shared=True, alpha=0.5))
    assert not isinstance(plan, No)
    plan.launch(0, a=1, b=2, d=3)
    _, desc, alpha, _, a, _, b, *_ = fake.products[0]
    assert alpha.contents.value == 0.5
    assert fake.attributes[a.value] == {5: 3, 6: 0}
    assert fake.attributes[b.value] == {5: 3, 6: 256}
    assert fake.layouts[b.value] == (2, 8, 32, 8)
    assert fake.attributes[desc.value][4] == 1


def test_a_batch_with_shared_b_becomes_rows() -> None:
    p = GemmProblem.packed(8, 16, 32, batch=3, b_shared=True, epilogue=("bias", "residual"))
    assert (p.folded.m, p.folded.batch, p.folded.residual) == (24, 1, Matrix(dtype.float16, 16))
    assert GemmProblem.packed(8, 16, 32, batch=3).folded.batch == 3
    assert GemmProblem.packed(8, 16, 32, batch=3, a_transposed=True, b_shared=True).folded.batch == 3


def test_an_algorithm_is_adapted_to_other_rows() -> None:
    fake, blas = made()
    plan = blas.plan(GemmProblem.packed(8, 16, 32))
    assert isinstance(plan, GemmPlan)
    fake.fail["MatmulAlgoGetHeuristic"] = 15
    other = blas.adapted(plan, GemmProblem.packed(9, 16, 32))
    assert isinstance(other, GemmPlan) and (other.algorithm, other.workspace) == (plan.algorithm, 512)
    assert fake.checked == [(plan.descriptors.desc.value, b"\7", [(16, 32, 16), (32, 9, 32), (16, 9, 16)])]
    other.launch(0, 1, 2, 3, workspace=4)
    assert fake.products[0][1].value == plan.descriptors.desc.value
    del plan  # the description of the operation is still used
    assert list(fake.alive.values()).count("desc") == 1
    fake.state = 7
    assert blas.adapted(other, GemmProblem.packed(10, 16, 32)) is None
    del other
    assert list(fake.alive.values()) == ["handle"]


def test_a_residual_is_c_with_beta_one() -> None:
    fake, blas = made()
    single = dtype.float32
    problem = GemmProblem(
        8, 16, 32, Matrix(single, 40), Matrix(single, 16), Matrix(single, 24), residual=Matrix(single, 20),
        epilogue=("residual", "bias"), compute="tf32",
    )  # fmt: skip
    plan = blas.plan(problem)
    assert not isinstance(plan, No)
    plan.launch(0, a=1, b=2, d=3, residual=4, bias=5)
    product = fake.products[0]
    assert product[7].contents.value == 1.0
    assert (product[8], product[10]) == (4, 3)
    assert fake.layouts[product[9].value] == (0, 16, 8, 20)
    assert fake.layouts[product[11].value] == (0, 16, 8, 24)
    assert fake.attributes[product[1].value][-1] == 77
    with pytest.raises(ParameterError, match="bias and residual"):
        plan.launch(0, a=1, b=2, d=3)


@pytest.mark.parametrize("table", [CUBLASLT, HIPBLASLT], ids=lambda t: t.name)
def test_factors_per_row_and_column_are_exchanged_like_the_operands(table: BlasTable) -> None:
    fake, blas = made(table)
    plan = blas.plan(scaled())
    assert not isinstance(plan, No)
    (attributes,) = (found for found in fake.attributes.values() if table.desc["a_scale_mode"] in found)
    assert attributes[table.desc["a_scale_pointer"]] and attributes[table.desc["b_scale_pointer"]]  # before the search
    plan.launch(0, a=1, b=2, d=3, a_scale=0x40, b_scale=0x80)
    assert attributes[table.desc["a_scale_mode"]] == attributes[table.desc["b_scale_mode"]] == 3
    assert attributes[table.desc["a_scale_pointer"]] == 0x80
    assert attributes[table.desc["b_scale_pointer"]] == 0x40
    for factors in ({}, {"a_scale": 1}, {"b_scale": 1}):
        with pytest.raises(ParameterError, match="factors must be given"):
            plan.launch(0, a=1, b=2, d=3, **factors)
    plain = blas.plan(scaled(scaled=False))
    assert not isinstance(plain, No)
    with pytest.raises(ParameterError, match="factors must be given"):
        plain.launch(0, a=1, b=2, d=3, a_scale=1, b_scale=1)


def scaled(of: dtype.DType = dtype.float8_e4m3fn, **more: Any) -> GemmProblem:
    rows = Matrix(of, 32)
    columns = Matrix(of, 32, transposed=True)
    return GemmProblem(16, 48, 32, rows, columns, Matrix(dtype.float16, 48), **({"scaled": True} | more))


def test_no_other_library_has_products_of_8_bit_floats_with_factors() -> None:
    """cuDNN's plans of matrix products would leave the factors out."""
    _, blas = made(offers=0)
    libraries = Libraries("cuda", loaded={"cublaslt": blas, "cudnn": object()})
    for found in (libraries.plan(scaled()), libraries.plans(scaled())):
        assert isinstance(found, No) and "no algorithm" in found.why


def test_half_sums_use_half_scalars() -> None:
    fake, blas = made()
    plan = blas.plan(GemmProblem.packed(8, 8, 8, compute="f16", alpha=2.0))
    assert not isinstance(plan, No)
    plan.launch(0, a=1, b=2, d=3)
    assert fake.products[0][2].contents.value == 0x4000
    assert fake.attributes[fake.products[0][1].value][-2] == 2


def test_plans_carry_workspace_and_a_choice_that_needs_no_search() -> None:
    fake, blas = made()
    p = GemmProblem.packed(8, 8, 8)
    plans = blas.plans(p, 4)
    assert not isinstance(plans, No)
    assert [plan.workspace for plan in plans] == [0, 1024]
    with pytest.raises(ParameterError, match="workspace of 1024"):
        plans[1].launch(0, a=1, b=2, d=3)
    fake.fail["MatmulAlgoGetHeuristic"] = 15
    again = blas.plan(p, plans[1].choice)
    assert not isinstance(again, No)
    again.launch(0, a=1, b=2, d=3, workspace=0x77)
    assert fake.products[0][13:15] == (0x77, 1024)
    assert again.choice == {
        "library": "cublaslt",
        "version": "cublaslt 130100",
        "algorithm": "08" + "00" * 63,
        "workspace": 1024,
    }
    old = blas.plan(p, plans[1].choice | {"version": "cublaslt 1"})
    assert isinstance(old, No) and "NOT_SUPPORTED (15)" in old.why


def test_the_preference_states_space_and_alignment() -> None:
    fake, blas = made()
    half = dtype.float16
    blas.plan(GemmProblem(8, 8, 8, Matrix(half, 8, align=16), Matrix(half, 8, align=32), Matrix(half, 8)))
    assert fake.preferences == [{1: 32 << 20, 5: 32, 6: 16, 7: 256, 8: 256}]
    fake, blas = made(HIPBLASLT)
    blas.plan(GemmProblem.packed(8, 8, 8))
    assert fake.preferences == [{1: 32 << 20}]


@pytest.mark.parametrize(
    ("epilogue", "word"),
    [
        (("bias", Activation("gelu_erf")), "no epilogue"),
        ((RELU, "bias"), "supports one activation"),
        ((Activation("relu", high=6.0),), "no relu"),
        ((Activation("swish"),), "no epilogue"),
    ],
    ids=str,
)
def test_features_missing_in_the_library_are_rejected(epilogue: Any, word: str) -> None:
    _, blas = made()
    answer = blas.plan(GemmProblem.packed(8, 8, 8, epilogue=epilogue))
    assert isinstance(answer, No) and word in answer.why


def test_odd_rows_with_gaps_are_refused() -> None:
    _, blas = made()
    half, single = Matrix(dtype.float16, 8), Matrix(dtype.float32, 8)
    answer = blas.plan(GemmProblem(8, 7, 8, half, half, Matrix(dtype.float16, 8)))
    assert isinstance(answer, No) and "odd length" in answer.why
    assert not isinstance(blas.plan(GemmProblem(8, 7, 8, half, half, Matrix(dtype.float16, 7))), No)
    assert not isinstance(blas.plan(GemmProblem(8, 7, 8, single, single, single)), No)


def test_hipblaslt_has_swish() -> None:
    fake, blas = made(HIPBLASLT)
    plan = blas.plan(GemmProblem.packed(8, 8, 8, epilogue=("bias", Activation("swish"))))
    assert not isinstance(plan, No)
    plan.launch(0, a=1, b=2, d=3, bias=4)
    assert fake.attributes[fake.products[0][1].value][2] == 65540


def test_no_algorithm_is_a_refusal() -> None:
    _, blas = made(offers=0)
    answer = blas.plan(GemmProblem.packed(8, 8, 8))
    assert isinstance(answer, No) and "no algorithm" in answer.why


def test_a_failure_names_the_call_and_the_status() -> None:
    fake, blas = made()
    plan = blas.plan(GemmProblem.packed(8, 8, 8))
    assert not isinstance(plan, No)
    fake.fail["Matmul"] = 13
    with pytest.raises(
        DeviceError, match=r"cublasLtMatmul \(cublaslt gemm 8x8x8 NN float16\): EXECUTION_FAILED \(13\)"
    ):
        plan.launch(0, a=1, b=2, d=3)
    fake = FakeBlas(CUBLASLT)
    fake.fail["Create"] = 1
    with pytest.raises(DeviceError, match=r"cublasLtCreate: NOT_INITIALIZED \(1\)"):
        Blas(CUBLASLT, fake)


def test_everything_is_released() -> None:
    fake, blas = made()
    plan = blas.plan(GemmProblem.packed(8, 8, 8, epilogue=("residual",)))
    assert set(fake.alive.values()) == {"handle", "desc", "layout"}
    del plan
    assert list(fake.alive.values()) == ["handle"]
    blas.close()
    assert not fake.alive


def problem(ld: int = 8, **more: Any) -> GemmProblem:
    a, b, d = (Matrix(dtype.float16, n) for n in (ld, 8, 8))
    return GemmProblem(8, 8, 8, a, b, d, **more)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: GemmProblem.packed(0, 8, 8), "a product requires extents of at least 1, got 1 of 0x8x8"),
        (lambda: problem(7), "a has rows of 8 elements, got ld 7"),
        (lambda: problem(epilogue=("residual",)), 'a residual requires both "residual" in the epilogue and its Matrix'),
        (lambda: problem(residual=Matrix(dtype.float16, 8)), 'requires both "residual" in the epilogue and its Matrix'),
        (lambda: problem(epilogue=("bias", "bias")), "an epilogue has at most one bias"),
        (lambda: problem(epilogue=("scale",)), 'of an epilogue is "bias", "residual" or an Activation, got \'scale\''),
        (lambda: Activation("mish"), "an activation is one of relu, .*, got 'mish'"),
        (lambda: scaled(dtype.float16), "factors per row and column require a single product of 8-bit floats"),
        (lambda: scaled(dtype.int8), "factors per row and column require a single product of 8-bit floats"),
    ],
)
def test_problems_that_do_not_fit_are_errors(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make()
