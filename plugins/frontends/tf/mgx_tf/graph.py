"""Graphs and function bodies as tables of nodes with resolved inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mgx_core import ParseError

__all__ = ["FunctionGraph", "Functions", "Graph", "GraphNode", "Port", "Signatures", "tensor_port"]


class Port(NamedTuple):
    """An output of a node, by index."""

    node: str
    place: int = 0


class GraphNode:
    """A node: operator, data inputs, control inputs, attributes."""

    __slots__ = ("controls", "inputs", "name", "op", "proto")

    def __init__(self, proto: Any, inputs: list[Port], controls: list[str]) -> None:
        self.name: str = proto.name
        self.op: str = proto.op
        self.inputs = inputs
        self.controls = controls
        self.proto = proto

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The AttrValues by name."""
        found: Mapping[str, Any] = self.proto.attr
        return found

    def __repr__(self) -> str:
        return f"node {self.name!r} ({self.op})"


# output names of operators with several outputs; all others have a single output, a tensor or a list
OUTPUTS: Final[dict[str, tuple[str, ...]]] = {
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV2": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV3": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2", "reserve_space_3"),
    "TopK": ("values", "indices"),
    "TopKV2": ("values", "indices"),
    "Unique": ("y", "idx"),
    "UniqueV2": ("y", "idx"),
    "UniqueWithCounts": ("y", "idx", "count"),
    "UniqueWithCountsV2": ("y", "idx", "count"),
    "Switch": ("output_false", "output_true"),
    "RefSwitch": ("output_false", "output_true"),
    "Merge": ("output", "value_index"),
    "RefMerge": ("output", "value_index"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": ("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections"),
    "StringNGrams": ("ngrams", "ngrams_splits"),
    "StringSplit": ("indices", "values", "shape"),
    "StringSplitV2": ("indices", "values", "shape"),
    "TensorArrayV3": ("handle", "flow"),
    "TensorArrayGatherV3": ("value",),
    "TensorArrayConcatV3": ("value", "lengths"),
    "TensorListConcat": ("tensor", "lengths"),
    "TensorListConcatV2": ("tensor", "lengths"),
    "TensorListPopBack": ("output_handle", "tensor"),
    "Svd": ("s", "u", "v"),
    "SelfAdjointEigV2": ("e", "v"),
    "Qr": ("q", "r"),
    "Lu": ("lu", "p"),
    "SparseSegmentMean": ("output",),
    "SparseFillEmptyRows": ("output_indices", "output_values", "empty_row_indicator", "reverse_index_map"),
    "SparseReshape": ("output_indices", "output_shape"),
    "SparseSlice": ("output_indices", "output_values", "output_shape"),
    "RaggedRange": ("rt_nested_splits", "rt_dense_values"),
    "RaggedGather": ("output_nested_splits", "output_dense_values"),
    "RaggedTensorFromVariant": ("output_nested_splits", "output_dense_values"),
    "LookupTableExportV2": ("keys", "values"),
    "ListDiff": ("out", "idx"),
    "Moments": ("mean", "variance"),
    "BlockLSTM": ("i", "cs", "f", "o", "ci", "co", "h"),
    "BlockLSTMV2": ("i", "cs", "f", "o", "ci", "co", "h"),
    "LSTMBlockCell": ("i", "cs", "f", "o", "ci", "co", "h"),
    "GRUBlockCell": ("r", "u", "c", "h"),
    "FakeQuantWithMinMaxArgsGradient": ("backprops",),
    "SampleDistortedBoundingBox": ("begin", "size", "bboxes"),
    "SampleDistortedBoundingBoxV2": ("begin", "size", "bboxes"),
    "UnicodeDecodeWithOffsets": ("row_splits", "char_values", "char_to_byte_starts"),
    "UnicodeDecode": ("row_splits", "char_values"),
    "CTCGreedyDecoder": ("decoded_indices", "decoded_values", "decoded_shape", "log_probability"),
    "Frexp": ("mantissa", "exponent"),
    "CudnnRNNV3": ("output", "output_h", "output_c", "reserve_space", "host_reserved"),
    "QuantizeV2": ("output", "output_min", "output_max"),
    "Dequantize": ("output",),
    "SparseSplit": ("output_indices", "output_values", "output_shape"),
    "StatelessRandomGetKeyCounter": ("key", "counter"),
    "RngReadAndSkip": ("value",),
}


class Signatures:
    """Named outputs of operators: from OpDefs in the file, from functions, else from a built-in table."""

    def __init__(self, definitions: Iterable[Any] = (), functions: Mapping[str, Any] | None = None) -> None:
        self._definitions = {d.name: d.output_arg for d in definitions}
        self._definitions.update({name: f.signature.output_arg for name, f in (functions or {}).items()})
        self._fixed: dict[tuple[str, str], int] = {}  # offsets that do not depend on the node

    def offset(self, node: Any, output: str) -> int:
        """Returns the index of the first tensor of a named output.  Errors: ParseError if the operator has no such output."""
        fixed = self._fixed.get((node.op, output))
        if fixed is not None:
            return fixed
        given = self._definitions.get(node.op)
        if given is None:
            names = OUTPUTS.get(node.op)
            if names is None:
                return 0
            if output not in names:
                raise ParseError(f"operator {node.op} has no output {output!r}; it has {', '.join(names)}")
            return names.index(output)
        at, lists = 0, False
        for arg in given:
            if arg.name == output:
                if not lists:
                    self._fixed[node.op, output] = at
                return at
            lists = lists or bool(arg.number_attr or arg.type_list_attr)  # their lengths are attributes of the node
            if arg.number_attr:
                at += int(node.attr[arg.number_attr].i)
            elif arg.type_list_attr:
                at += len(node.attr[arg.type_list_attr].list.type)
            else:
                at += 1
        raise ParseError(f"operator {node.op} has no output {output!r}; it has {', '.join(a.name for a in given)}")


def tensor_port(text: str) -> Port:
    """Parses a tensor name, ``node`` or ``node:index``.  Errors: ParseError."""
    name, colon, index = text.partition(":")
    if colon and not (index.isascii() and index.isdigit() and len(index) < 8):
        raise ParseError(f"{text!r} does not name a tensor (node or node:index)")
    return Port(name, int(index) if colon else 0)


class Graph:
    """The nodes of a graph by name.  Errors: ParseError for duplicate names."""

    def __init__(self, protos: Sequence[Any], signatures: Signatures, name: str = "") -> None:
        self.name = name
        self.signatures = signatures
        self.nodes: dict[str, GraphNode] = {}
        self._protos = {p.name: p for p in protos}
        self.derived: dict[str, Any] = {}  # cached analyses of the graph
        if len(self._protos) < len(protos):
            seen: set[str] = set()
            for p in protos:
                if p.name in seen:
                    raise ParseError(f"several nodes are named {p.name!r}")
                seen.add(p.name)
        for proto in protos:
            inputs, controls = [], []
            for text in proto.input:
                if text.startswith("^"):
                    controls.append(text[1:])
                else:
                    inputs.append(self.port(text))
            self.nodes[proto.name] = GraphNode(proto, inputs, controls)

    def port(self, text: str) -> Port:
        """Parses an input of a node."""
        return tensor_port(text)

    def origin(self, port: Port) -> Port:
        """Returns the port that produces a value, looking through identities."""
        for _ in range(len(self.nodes)):
            node = self.nodes.get(port.node)
            if node is None or node.op != "Identity" or len(node.inputs) != 1:
                break
            port = node.inputs[0]
        return port

    def node(self, name: str) -> GraphNode:
        """Errors: ParseError for an unknown name."""
        found = self.nodes.get(name)
        if found is None:
            raise ParseError(f"{name!r} is read, but not defined" + (f" in {self.name}" if self.name else ""))
        return found


class FunctionGraph(Graph):
    """The body of a function; its arguments are ports without a node."""

    def __init__(self, proto: Any, signatures: Signatures) -> None:
        self.proto = proto
        self.arguments: list[str] = [a.name for a in proto.signature.input_arg]
        self.results: list[str] = [a.name for a in proto.signature.output_arg]
        super().__init__(list(proto.node_def), signatures, f"function {proto.signature.name!r}")
        for name in self.arguments:
            if name in self.nodes:
                raise ParseError(f"an argument and a node of {self.name} are both named {name!r}")
        missing = [r for r in self.results if r not in proto.ret]
        if missing:
            raise ParseError(f"{self.name} does not define its result {missing[0]!r}")
        self.returned = [self.port(proto.ret[r]) for r in self.results]

    def port(self, text: str) -> Port:
        parts = text.split(":")
        if len(parts) == 1:
            return Port(text, 0)
        if len(parts) == 2:
            return tensor_port(text) if parts[0] in self._protos else Port(parts[0], 0)
        name, output, index = parts[0], parts[1], parts[-1]
        proto = self._protos.get(name)
        if proto is None or len(parts) > 3 or not (index.isascii() and index.isdigit() and len(index) < 8):
            raise ParseError(f"{text!r} in {self.name} does not name an output (node:output:index)")
        return Port(name, self.signatures.offset(proto, output) + int(index))


class Functions(Mapping[str, FunctionGraph]):
    """The functions of a model by name; bodies are parsed on first access.

    Errors: ParseError for duplicate names.
    """

    def __init__(self, protos: Iterable[Any], definitions: Iterable[Any] = ()) -> None:
        self._protos: dict[str, Any] = {}
        for proto in protos:
            name = proto.signature.name
            if name in self._protos:
                raise ParseError(f"several functions are named {name!r}")
            self._protos[name] = proto
        definitions = list(definitions)
        self.signatures = Signatures(definitions, self._protos)
        # operators whose OpDef has no function attribute
        self.plain = {d.name for d in definitions if not any("func" in a.type for a in d.attr)}
        self._read: dict[str, FunctionGraph] = {}
        self.derived: dict[Any, Any] = {}  # cached analyses of functions

    def __getitem__(self, name: str) -> FunctionGraph:
        if name not in self._read:
            self._read[name] = FunctionGraph(self._protos[name], self.signatures)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._protos

    def __iter__(self) -> Iterator[str]:
        return iter(self._protos)

    def __len__(self) -> int:
        return len(self._protos)

    def called(self, node: Any) -> list[str]:
        """Returns the names of the functions that a node calls: its operator or its function attributes."""
        if node.op in self._protos:
            return [node.op]
        if node.op in self.plain or not self._protos:
            return []
        found = []
        for value in node.attr.values():
            match value.WhichOneof("value"):
                case "func":
                    found.append(value.func.name)
                case "list":
                    found += [f.name for f in value.list.func]
        return [name for name in found if name in self._protos]

    def nodes(self, name: str) -> Iterable[Any]:
        """Returns the NodeDefs of a function."""
        found: Iterable[Any] = self._protos[name].node_def
        return found
