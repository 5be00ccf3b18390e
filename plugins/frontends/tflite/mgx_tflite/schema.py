"""Accessors of the FlatBuffer tables in a .tflite file, by the schema of TFLite 2.18.

Tables are read in place: a number is unpacked when it is accessed, a vector of numbers is a view of the file. References outside
the file are rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from mgx_core.types.argument import Array

__all__ = ["OPERATORS", "OPTIONS", "OPTIONS_2", "Table", "root"]

# `table: field slot type`; types are those of `struct`, s a string, u a union, `*` a vector, `=` a default other than 0
FIELDS: Final = """
AddOptions: FusedActivationFunction 0 b, PotScaleInt16 1 ?=1
ArgMaxOptions: OutputType 0 b
ArgMinOptions: OutputType 0 b
BatchMatMulOptions: AdjX 0 ?, AdjY 1 ?, AsymmetricQuantizeInputs 2 ?
BidirectionalSequenceLSTMOptions: FusedActivationFunction 0 b, CellClip 1 f, ProjClip 2 f, MergeOutputs 3 ?, TimeMajor 4 ?=1,
 AsymmetricQuantizeInputs 5 ?
BidirectionalSequenceRNNOptions: TimeMajor 0 ?, FusedActivationFunction 1 b, MergeOutputs 2 ?, AsymmetricQuantizeInputs 3 ?
BucketizeOptions: Boundaries 0 *f
Buffer: Data 0 *B, Offset 1 Q, Size 2 Q
CallOnceOptions: InitSubgraphIndex 0 i
CallOptions: Subgraph 0 I
CastOptions: InDataType 0 b, OutDataType 1 b
ConcatEmbeddingsOptions: NumChannels 0 i, NumColumnsPerChannel 1 *i, EmbeddingDimPerChannel 2 *i
ConcatenationOptions: Axis 0 i, FusedActivationFunction 1 b
Conv2DOptions: Padding 0 b, StrideW 1 i, StrideH 2 i, FusedActivationFunction 3 b, DilationWFactor 4 i=1, DilationHFactor 5 i=1,
 QuantizedBiasType 6 b
Conv3DOptions: Padding 0 b, StrideD 1 i, StrideW 2 i, StrideH 3 i, FusedActivationFunction 4 b, DilationDFactor 5 i=1,
 DilationWFactor 6 i=1, DilationHFactor 7 i=1
CumsumOptions: Exclusive 0 ?, Reverse 1 ?
DepthToSpaceOptions: BlockSize 0 i
DepthwiseConv2DOptions: Padding 0 b, StrideW 1 i, StrideH 2 i, DepthMultiplier 3 i, FusedActivationFunction 4 b, DilationWFactor
 5 i=1, DilationHFactor 6 i=1
DimensionMetadata: Format 0 b, DenseSize 1 i, ArraySegmentsType 2 B, ArraySegments 3 u, ArrayIndicesType 4 B, ArrayIndices 5 u
DivOptions: FusedActivationFunction 0 b
EmbeddingLookupSparseOptions: Combiner 0 b
FakeQuantOptions: Min 0 f, Max 1 f, NumBits 2 i, NarrowRange 3 ?
FullyConnectedOptions: FusedActivationFunction 0 b, WeightsFormat 1 b, KeepNumDims 2 ?, AsymmetricQuantizeInputs 3 ?,
 QuantizedBiasType 4 b
GatherOptions: Axis 0 i, BatchDims 1 i
GeluOptions: Approximate 0 ?
HashtableOptions: TableId 0 i, KeyDtype 1 b, ValueDtype 2 b
IfOptions: ThenSubgraphIndex 0 i, ElseSubgraphIndex 1 i
Int32Vector: Values 0 *i
L2NormOptions: FusedActivationFunction 0 b
LSHProjectionOptions: Type 0 b
LSTMOptions: FusedActivationFunction 0 b, CellClip 1 f, ProjClip 2 f, KernelType 3 b, AsymmetricQuantizeInputs 4 ?
LeakyReluOptions: Alpha 0 f
LocalResponseNormalizationOptions: Radius 0 i, Bias 1 f, Alpha 2 f, Beta 3 f
MirrorPadOptions: Mode 0 b
Model: Version 0 I, OperatorCodes 1 *OperatorCode, Subgraphs 2 *SubGraph, Description 3 s, Buffers 4 *Buffer, MetadataBuffer 5
 *i, SignatureDefs 7 *SignatureDef
MulOptions: FusedActivationFunction 0 b
OneHotOptions: Axis 0 i
Operator: OpcodeIndex 0 I, Inputs 1 *i, Outputs 2 *i, BuiltinOptionsType 3 B, BuiltinOptions 4 u, CustomOptions 5 *B,
 CustomOptionsFormat 6 b, MutatingVariableInputs 7 *?, Intermediates 8 *i, LargeCustomOptionsOffset 9 Q, LargeCustomOptionsSize
 10 Q, BuiltinOptions2Type 11 B, BuiltinOptions2 12 u, DebugMetadataIndex 13 i=-1
OperatorCode: DeprecatedBuiltinCode 0 b, CustomCode 1 s, Version 2 i=1, BuiltinCode 3 i
PackOptions: ValuesCount 0 i, Axis 1 i
Pool2DOptions: Padding 0 b, StrideW 1 i, StrideH 2 i, FilterWidth 3 i, FilterHeight 4 i, FusedActivationFunction 5 b
QuantizationParameters: Min 0 *f, Max 1 *f, Scale 2 *f, ZeroPoint 3 *q, DetailsType 4 B, Details 5 u, QuantizedDimension 6 i
RNNOptions: FusedActivationFunction 0 b, AsymmetricQuantizeInputs 1 ?
RandomOptions: Seed 0 q, Seed2 1 q
ReduceWindowOptions: ReduceFunction 0 i
ReducerOptions: KeepDims 0 ?
ReshapeOptions: NewShape 0 *i
ResizeBilinearOptions: AlignCorners 2 ?, HalfPixelCenters 3 ?
ResizeNearestNeighborOptions: AlignCorners 0 ?, HalfPixelCenters 1 ?
ReverseSequenceOptions: SeqDim 0 i, BatchDim 1 i
SVDFOptions: Rank 0 i, FusedActivationFunction 1 b, AsymmetricQuantizeInputs 2 ?
SequenceRNNOptions: TimeMajor 0 ?, FusedActivationFunction 1 b, AsymmetricQuantizeInputs 2 ?
ShapeOptions: OutType 0 b
SignatureDef: Inputs 0 *TensorMap, Outputs 1 *TensorMap, SignatureKey 2 s, SubgraphIndex 4 I
SkipGramOptions: NgramSize 0 i, MaxSkipSize 1 i, IncludeAllNgrams 2 ?
SoftmaxOptions: Beta 0 f
SpaceToDepthOptions: BlockSize 0 i
SparseToDenseOptions: ValidateIndices 0 ?
SparsityParameters: TraversalOrder 0 *i, BlockMap 1 *i, DimMetadata 2 *DimensionMetadata
SplitOptions: NumSplits 0 i
SplitVOptions: NumSplits 0 i
SqueezeOptions: SqueezeDims 0 *i
StableHLOCompositeOptions: Name 0 s, DecompositionSubgraphIndex 1 i, CompositeAttributes 2 *B, CompositeAttributesFormat 3 b,
 Version 4 i
StablehloBroadcastInDimOptions: BroadcastDimensions 0 *q
StablehloCompareOptions: ComparisonDirection 0 I, CompareType 1 I
StablehloConcatenateOptions: Dimension 0 q
StablehloConvolutionOptions: WindowStrides 0 *q, Padding 1 *q, LhsDilation 2 *q, RhsDilation 3 *q, WindowReversal 4 *?,
 InputBatchDimension 5 q, InputFeatureDimension 6 q, InputSpatialDimensions 7 *q, KernelInputFeatureDimension 8 q,
 KernelOutputFeatureDimension 9 q, KernelSpatialDimensions 10 *q, OutputBatchDimension 11 q, OutputFeatureDimension 12 q,
 OutputSpatialDimensions 13 *q, FeatureGroupCount 14 q, BatchGroupCount 15 q, PrecisionConfig 16 *I
StablehloCustomCallOptions: CallTargetName 0 s, HasSideEffect 1 ?, BackendConfig 2 s, ApiVersion 3 i, CalledComputations 4 *i,
 CustomAttributes 5 *B
StablehloDotGeneralOptions: LhsBatchingDimensions 0 *q, RhsBatchingDimensions 1 *q, LhsContractingDimensions 2 *q,
 RhsContractingDimensions 3 *q, PrecisionConfig 4 *I
StablehloDynamicSliceOptions: SliceSizes 0 *q
StablehloGatherOptions: OffsetDims 0 *q, CollapsedSliceDims 1 *q, StartIndexMap 2 *q, IndexVectorDim 3 q, SliceSizes 4 *q,
 IndicesAreSorted 5 ?
StablehloIotaOptions: IotaDimension 0 q
StablehloPadOptions: EdgePaddingLow 0 *q, EdgePaddingHigh 1 *q, InteriorPadding 2 *q
StablehloReduceOptions: Dimensions 0 *q, BodySubgraphIndex 1 i
StablehloReduceWindowOptions: WindowDimensions 0 *q, WindowStrides 1 *q, BaseDilations 2 *q, WindowDilations 3 *q, Padding 4 *q,
 BodySubgraphIndex 5 i
StablehloRngBitGeneratorOptions: Algorithm 0 b
StablehloScatterOptions: IndicesAreSorted 0 ?, UpdateWindowDims 1 *q, InsertedWindowDims 2 *q, ScatterDimsToOperandDims 3 *q,
 IndexVectorDim 4 q, UniqueIndices 5 ?, UpdateComputationSubgraphIndex 6 i
StablehloSliceOptions: StartIndices 0 *q, LimitIndices 1 *q, Strides 2 *q
StablehloSortOptions: Dimension 0 q, IsStable 1 ?, ComparatorSubgraphIndex 2 i
StablehloTransposeOptions: Permutation 0 *q
StablehloWhileOptions: CondSubgraphIndex 0 i, BodySubgraphIndex 1 i
StridedSliceOptions: BeginMask 0 i, EndMask 1 i, EllipsisMask 2 i, NewAxisMask 3 i, ShrinkAxisMask 4 i, Offset 5 ?
SubGraph: Tensors 0 *Tensor, Inputs 1 *i, Outputs 2 *i, Operators 3 *Operator, Name 4 s, DebugMetadataIndex 5 i=-1
SubOptions: FusedActivationFunction 0 b, PotScaleInt16 1 ?=1
Tensor: Shape 0 *i, Type 1 b, Buffer 2 I, Name 3 s, Quantization 4 QuantizationParameters, IsVariable 5 ?, Sparsity 6
 SparsityParameters, ShapeSignature 7 *i, HasRank 8 ?
TensorMap: Name 0 s, TensorIndex 1 I
TransposeConvOptions: Padding 0 b, StrideW 1 i, StrideH 2 i, FusedActivationFunction 3 b, QuantizedBiasType 4 b
Uint16Vector: Values 0 *H
Uint8Vector: Values 0 *B
UnidirectionalSequenceLSTMOptions: FusedActivationFunction 0 b, CellClip 1 f, ProjClip 2 f, TimeMajor 3 ?,
 AsymmetricQuantizeInputs 4 ?, DiagonalRecurrentTensors 5 ?
UniqueOptions: IdxOutType 0 b=2
UnpackOptions: Num 0 i, Axis 1 i
VarHandleOptions: Container 0 s, SharedName 1 s
WhileOptions: CondSubgraphIndex 0 i, BodySubgraphIndex 1 i
"""


def _listed(words: str) -> tuple[str, ...]:
    """Returns enumeration names, indexed by value."""
    return tuple(words.split())


OPERATORS: Final = _listed("""
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED
HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU
RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV
SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD
REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL
FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N
GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND
HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS
RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC
STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD
STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE
DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
""")

OPTIONS: Final = _listed("""
NONE Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions Pool2DOptions SVDFOptions RNNOptions
FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions L2NormOptions LocalResponseNormalizationOptions LSTMOptions
ResizeBilinearOptions CallOptions ReshapeOptions SkipGramOptions SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions
PadOptions GatherOptions BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions ReducerOptions SubOptions DivOptions
SqueezeOptions SequenceRNNOptions StridedSliceOptions ExpOptions TopKV2Options SplitOptions LogSoftmaxOptions CastOptions
DequantizeOptions MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions PadV2Options GreaterOptions GreaterEqualOptions
LessEqualOptions SelectOptions SliceOptions TransposeConvOptions SparseToDenseOptions TileOptions ExpandDimsOptions EqualOptions
NotEqualOptions ShapeOptions PowOptions ArgMinOptions FakeQuantOptions PackOptions LogicalOrOptions OneHotOptions
LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions SquareOptions ZerosLikeOptions FillOptions
BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions UnidirectionalSequenceLSTMOptions FloorModOptions RangeOptions
ResizeNearestNeighborOptions LeakyReluOptions SquaredDifferenceOptions MirrorPadOptions AbsOptions SplitVOptions UniqueOptions
ReverseV2Options AddNOptions GatherNdOptions CosOptions WhereOptions RankOptions ReverseSequenceOptions MatrixDiagOptions
QuantizeOptions MatrixSetDiagOptions HardSwishOptions IfOptions WhileOptions DepthToSpaceOptions NonMaxSuppressionV4Options
NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options DensifyOptions SegmentSumOptions BatchMatMulOptions CumsumOptions
CallOnceOptions BroadcastToOptions Rfft2dOptions Conv3DOptions HashtableOptions HashtableFindOptions HashtableImportOptions
HashtableSizeOptions VarHandleOptions ReadVariableOptions AssignVariableOptions RandomOptions BucketizeOptions GeluOptions
DynamicUpdateSliceOptions UnsortedSegmentProdOptions UnsortedSegmentMaxOptions UnsortedSegmentMinOptions
UnsortedSegmentSumOptions ATan2Options SignOptions BitcastOptions BitwiseXorOptions RightShiftOptions
""")

OPTIONS_2: Final = _listed("""
NONE StablehloConcatenateOptions StablehloBroadcastInDimOptions StablehloSliceOptions StablehloConvolutionOptions
StablehloCustomCallOptions StablehloReduceOptions StablehloScatterOptions StablehloCompareOptions StablehloDynamicSliceOptions
StablehloPadOptions StablehloIotaOptions StablehloDotGeneralOptions StablehloReduceWindowOptions StablehloSortOptions
StablehloWhileOptions StablehloGatherOptions StablehloTransposeOptions DilateOptions StablehloRngBitGeneratorOptions
ReduceWindowOptions StableHLOCompositeOptions StablehloShiftLeftOptions
""")

Fields = dict[str, tuple[int, str, int]]  # by name: slot, type, default


@cache
def _tables() -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for line in FIELDS.strip().replace("\n ", " ").splitlines():
        table, _, fields = line.partition(": ")
        found[table] = {}
        for field in fields.split(", "):
            name, place, kind = field.split(" ")
            kind, _, default = kind.partition("=")
            found[table][name] = 4 + 2 * int(place), kind, int(default or 0)
    return found


def root(data: Any) -> Table:
    """Returns the file's root table.  Errors: struct.error, ValueError for references outside the file."""
    return Table(data, _unpacked(data, "I", 0), "Model")


def _unpacked(data: Any, kind: str, at: int) -> Any:
    if at < 0:
        raise ValueError(f"offset {at} is before the start of the file")
    return struct.unpack_from("<" + kind, data, at)[0]


class Table:
    """A table.  Fields are methods; vectors take an index and have `NameLength` and, for numbers, `NameAsNumpy`."""

    __slots__ = ("_at", "_data", "_fields", "_places", "_size")

    def __init__(self, data: Any, at: int, kind: str) -> None:
        self._data, self._at = data, at
        self._fields = _tables().get(kind, {})
        self._places = at - _unpacked(data, "i", at)
        self._size = _unpacked(data, "H", self._places)

    def _place(self, slot: int) -> int:
        """Returns the file offset of a field; 0 if it is absent."""
        if slot + 2 > self._size:
            return 0
        offset = _unpacked(self._data, "H", self._places + slot)
        return self._at + offset if offset else 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        field = self._fields.get(name)
        if field is None:
            for ending, read in (("Length", self._length), ("AsNumpy", self._numbers)):
                if name.endswith(ending) and name.removesuffix(ending) in self._fields:
                    slot, kind, _ = self._fields[name.removesuffix(ending)]
                    return lambda: read(slot, kind)
            raise AttributeError(name)
        slot, kind, default = field
        if kind.startswith("*"):
            return lambda k: self._item(slot, kind, k)
        if len(kind) == 1 and kind not in "su":
            at = self._place(slot)
            value = _unpacked(self._data, kind, at) if at else bool(default) if kind == "?" else default
            return lambda: value
        return lambda: self._other(slot, kind)

    def _other(self, slot: int, kind: str) -> Any:
        """Returns a string as bytes, or a table; None if it is absent."""
        at = self._place(slot)
        if not at:
            return None
        at += _unpacked(self._data, "I", at)
        if kind != "s":
            return Table(self._data, at, kind)
        start, count = at + 4, _unpacked(self._data, "I", at)
        if start + count > len(self._data):
            raise ValueError("a string extends beyond the end of the file")
        return bytes(self._data[start : start + count])

    def union(self, name: str, kind: str) -> Table | None:
        """Returns the table of a union, whose type another field stores; None if it is absent."""
        found: Table | None = self._other(self._fields[name][0], kind)
        return found

    def _vector(self, slot: int) -> tuple[int, int]:
        """Returns the offset of a vector's first element, and its length."""
        at = self._place(slot)
        if not at:
            return 0, 0
        at += _unpacked(self._data, "I", at)
        return at + 4, _unpacked(self._data, "I", at)

    def _length(self, slot: int, kind: str) -> int:
        return self._vector(slot)[1]

    def _item(self, slot: int, kind: str, k: int) -> Table:
        at, count = self._vector(slot)
        if not 0 <= k < count:
            raise IndexError(f"element {k} of {count}")
        at += 4 * k
        return Table(self._data, at + _unpacked(self._data, "I", at), kind[1:])

    def _numbers(self, slot: int, kind: str) -> Array:
        at, count = self._vector(slot)
        return np.frombuffer(self._data, "<" + kind[1:], count, at)
