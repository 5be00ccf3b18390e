"""TensorFlow's protobuf messages, restricted to the fields that are read, in a private descriptor pool.

Names and numbers of fields are those of TensorFlow 2.21; unknown fields are skipped, as protobuf does.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["DATA_TYPES", "message"]

# `name number type`; `*`: repeated, `type[]`: a map with string keys, `name/oneof`: member of a oneof
FIELDS: Final = """
SavedModel: saved_model_schema_version 1 int64, meta_graphs 2 *MetaGraphDef
MetaGraphDef: meta_info_def 1 MetaInfoDef, graph_def 2 GraphDef, saver_def 3 SaverDef, signature_def 5 SignatureDef[],
 asset_file_def 6 *AssetFileDef, object_graph_def 7 bytes
MetaInfoDef: meta_graph_version 1 string, stripped_op_list 2 OpList, tags 4 *string, tensorflow_version 5 string,
 stripped_default_attrs 7 bool
SaverDef: filename_tensor_name 1 string, save_tensor_name 2 string, restore_op_name 3 string, version 7 int32
SignatureDef: inputs 1 TensorInfo[], outputs 2 TensorInfo[], method_name 3 string, defaults 4 TensorProto[]
TensorInfo: name/encoding 1 string, dtype 2 DataType, tensor_shape 3 TensorShapeProto, coo_sparse/encoding 4 CooSparse,
 composite_tensor/encoding 5 CompositeTensor
CooSparse: values_tensor_name 1 string, indices_tensor_name 2 string, dense_shape_tensor_name 3 string
CompositeTensor: components 2 *TensorInfo
AssetFileDef: tensor_info 1 TensorInfo, filename 2 string
GraphDef: node 1 *NodeDef, library 2 FunctionDefLibrary, version 3 int32, versions 4 VersionDef
VersionDef: producer 1 int32, min_consumer 2 int32, bad_consumers 3 *int32
FunctionDefLibrary: function 1 *FunctionDef
FunctionDef: signature 1 OpDef, node_def 3 *NodeDef, ret 4 string[], attr 5 AttrValue[], control_ret 6 string[]
OpList: op 1 *OpDef
OpDef: name 1 string, input_arg 2 *ArgDef, output_arg 3 *ArgDef, attr 4 *AttrDef, is_stateful 17 bool, control_output 20 *string
ArgDef: name 1 string, type 3 DataType, type_attr 4 string, number_attr 5 string, type_list_attr 6 string, is_ref 16 bool
AttrDef: name 1 string, type 2 string, default_value 3 AttrValue
NodeDef: name 1 string, op 2 string, input 3 *string, device 4 string, attr 5 AttrValue[]
AttrValue: list/value 1 ListValue, s/value 2 bytes, i/value 3 int64, f/value 4 float, b/value 5 bool, type/value 6 DataType,
 shape/value 7 TensorShapeProto, tensor/value 8 TensorProto, placeholder/value 9 string, func/value 10 NameAttrList
ListValue: s 2 *bytes, i 3 *int64, f 4 *float, b 5 *bool, type 6 *DataType, shape 7 *TensorShapeProto, tensor 8 *TensorProto,
 func 9 *NameAttrList
NameAttrList: name 1 string, attr 2 AttrValue[]
TensorShapeProto: dim 2 *Dim, unknown_rank 3 bool
Dim: size 1 int64, name 2 string
TensorProto: dtype 1 DataType, tensor_shape 2 TensorShapeProto, version_number 3 int32, tensor_content 4 bytes,
 float_val 5 *float, double_val 6 *double, int_val 7 *int32, string_val 8 *bytes, scomplex_val 9 *float, int64_val 10 *int64,
 bool_val 11 *bool, dcomplex_val 12 *double, half_val 13 *int32, uint32_val 16 *uint32, uint64_val 17 *uint64, float8_val 18 bytes
BundleHeaderProto: num_shards 1 int32, endianness 2 int32, version 3 VersionDef
BundleEntryProto: dtype 1 DataType, shape 2 TensorShapeProto, shard_id 3 int32, offset 4 int64, size 5 int64, crc32c 6 fixed32,
 slices 7 *TensorSliceProto
TensorSliceProto: extent 1 *Extent
Extent: start 1 int64, length/has_length 2 int64
SavedObjectGraph: nodes 1 *SavedObject, concrete_functions 2 SavedConcreteFunction[]
SavedObject: children 1 *ObjectReference
SavedConcreteFunction: bound_inputs 2 *int32
ObjectReference: node_id 1 int32, local_name 2 string
TrackableObjectGraph: nodes 1 *TrackableObject
TrackableObject: children 1 *ObjectReference, attributes 2 *SerializedTensor
SerializedTensor: name 1 string, full_name 2 string, checkpoint_key 3 string
Example: features 1 Features
SequenceExample: context 1 Features, feature_lists 2 FeatureLists
FeatureLists: feature_list 1 FeatureList[]
FeatureList: feature 1 *Feature
Features: feature 1 Feature[]
Feature: bytes_list/kind 1 BytesList, float_list/kind 2 FloatList, int64_list/kind 3 Int64List
BytesList: value 1 *bytes
FloatList: value 1 *float
Int64List: value 1 *int64
"""

DATA_TYPES: Final = {
    "FLOAT": 1, "DOUBLE": 2, "INT32": 3, "UINT8": 4, "INT16": 5, "INT8": 6, "STRING": 7, "COMPLEX64": 8, "INT64": 9, "BOOL": 10,
    "QINT8": 11, "QUINT8": 12, "QINT32": 13, "BFLOAT16": 14, "QINT16": 15, "QUINT16": 16, "UINT16": 17, "COMPLEX128": 18,
    "HALF": 19, "RESOURCE": 20, "VARIANT": 21, "UINT32": 22, "UINT64": 23, "FLOAT8_E5M2": 24, "FLOAT8_E4M3FN": 25, "INT4": 29,
    "UINT4": 30,
}  # fmt: skip


@cache
def _classes() -> dict[str, Any]:
    """Returns the message classes by name."""
    file = descriptor_pb2.FileDescriptorProto(name="mgx_tf.proto", package="tensorflow", syntax="proto3")
    kinds = file.enum_type.add(name="DataType")
    kinds.value.add(name="DT_INVALID", number=0)
    for name, number in DATA_TYPES.items():
        kinds.value.add(name=f"DT_{name}", number=number)
        kinds.value.add(name=f"DT_{name}_REF", number=number + 100)
    lines = FIELDS.strip().replace("\n ", " ").splitlines()
    for line in lines:
        name, _, fields = line.partition(": ")
        made = file.message_type.add(name=name)
        for field in fields.split(", "):
            _add_field(made, *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [line.partition(":")[0] for line in lines]
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"tensorflow.{name}")) for name in names}


def _add_field(message: Any, name: str, number: str, kind: str) -> None:
    proto = descriptor_pb2.FieldDescriptorProto
    name, _, oneof = name.partition("/")
    field = message.field.add(name=name, number=int(number), label=proto.LABEL_OPTIONAL)
    if oneof:
        known = [o.name for o in message.oneof_decl]
        if oneof not in known:
            message.oneof_decl.add(name=oneof)
            known.append(oneof)
        field.oneof_index = known.index(oneof)
    if kind.startswith("*"):
        kind, field.label = kind[1:], proto.LABEL_REPEATED
    if kind.endswith("[]"):
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", "1", "string")
        _add_field(entry, "value", "2", kind[:-2])
        field.label, field.type = proto.LABEL_REPEATED, proto.TYPE_MESSAGE
        field.type_name = f".tensorflow.{message.name}.{entry.name}"
    elif kind == "DataType":
        field.type, field.type_name = proto.TYPE_ENUM, ".tensorflow.DataType"
    elif kind[0].isupper():
        field.type, field.type_name = proto.TYPE_MESSAGE, f".tensorflow.{kind}"
    else:
        field.type = getattr(proto, f"TYPE_{kind.upper()}")


def message(name: str) -> Any:
    """Returns the message class of that name."""
    return _classes()[name]
