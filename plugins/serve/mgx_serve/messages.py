"""Builds the protocol's protobuf messages from a table.

They use a separate descriptor pool, because a client library in the same process may register messages of the same names.
Source: the Open Inference Protocol's field names and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from . import config_messages

__all__ = ["HEALTH_SERVICE", "SERVICE", "messages"]

SERVICE: Final = "inference.GRPCInferenceService"
# the standard health service, which orchestrators query; its messages have the same encoding as ours
HEALTH_SERVICE: Final = "grpc.health.v1.Health"

TABLE: Final = """
ServerLiveRequest
ServerLiveResponse: 1 live bool
ServerReadyRequest
ServerReadyResponse: 1 ready bool
ModelReadyRequest: 1 name string, 2 version string
ModelReadyResponse: 1 ready bool
HealthCheckRequest: 1 service string
HealthCheckResponse: 1 status int32
ServerMetadataRequest
ServerMetadataResponse: 1 name string, 2 version string, 3 extensions string*
ModelMetadataRequest: 1 name string, 2 version string
TensorMetadata: 1 name string, 2 datatype string, 3 shape int64*
ModelMetadataResponse: 1 name string, 2 versions string*, 3 platform string, 4 inputs TensorMetadata*, 5 outputs TensorMetadata*
InferParameter: 1 bool_param bool|, 2 int64_param int64|, 3 string_param string|, 4 double_param double|, 5 uint64_param uint64|
InferTensorContents: 1 bool_contents bool*, 2 int_contents int32*, 3 int64_contents int64*, 4 uint_contents uint32*,
 5 uint64_contents uint64*, 6 fp32_contents float*, 7 fp64_contents double*, 8 bytes_contents bytes*
InferInputTensor: 1 name string, 2 datatype string, 3 shape int64*, 4 parameters <InferParameter>, 5 contents InferTensorContents
InferRequestedOutputTensor: 1 name string, 2 parameters <InferParameter>
ModelInferRequest: 1 model_name string, 2 model_version string, 3 id string, 4 parameters <InferParameter>,
 5 inputs InferInputTensor*, 6 outputs InferRequestedOutputTensor*, 7 raw_input_contents bytes*
InferOutputTensor: 1 name string, 2 datatype string, 3 shape int64*, 4 parameters <InferParameter>, 5 contents InferTensorContents
ModelInferResponse: 1 model_name string, 2 model_version string, 3 id string, 4 parameters <InferParameter>,
 5 outputs InferOutputTensor*, 6 raw_output_contents bytes*
ModelStreamInferResponse: 1 error_message string, 2 infer_response ModelInferResponse
RepositoryIndexRequest: 1 repository_name string, 2 ready bool
ModelIndex: 1 name string, 2 version string, 3 state string, 4 reason string
RepositoryIndexResponse: 1 models ModelIndex*
ModelRepositoryParameter: 1 bool_param bool|, 2 int64_param int64|, 3 string_param string|, 4 bytes_param bytes|
RepositoryModelLoadRequest: 1 repository_name string, 2 model_name string, 3 parameters <ModelRepositoryParameter>
RepositoryModelLoadResponse
RepositoryModelUnloadRequest: 1 repository_name string, 2 model_name string, 3 parameters <ModelRepositoryParameter>
RepositoryModelUnloadResponse
StatisticDuration: 1 count uint64, 2 ns uint64
InferStatistics: 1 success StatisticDuration, 2 fail StatisticDuration, 3 queue StatisticDuration,
 4 compute_input StatisticDuration, 5 compute_infer StatisticDuration, 6 compute_output StatisticDuration,
 7 cache_hit StatisticDuration, 8 cache_miss StatisticDuration
InferBatchStatistics: 1 batch_size uint64, 2 compute_input StatisticDuration, 3 compute_infer StatisticDuration,
 4 compute_output StatisticDuration
ModelStatistics: 1 name string, 2 version string, 3 last_inference uint64, 4 inference_count uint64, 5 execution_count uint64,
 6 inference_stats InferStatistics, 7 batch_stats InferBatchStatistics*
SystemSharedMemoryStatusRequest: 1 name string
RegionStatus: 1 name string, 2 key string, 3 offset uint64, 4 byte_size uint64
SystemSharedMemoryStatusResponse: 1 regions <RegionStatus>
SystemSharedMemoryRegisterRequest: 1 name string, 2 key string, 3 offset uint64, 4 byte_size uint64
SystemSharedMemoryRegisterResponse
SystemSharedMemoryUnregisterRequest: 1 name string
SystemSharedMemoryUnregisterResponse
CudaSharedMemoryStatusRequest: 1 name string
CudaRegionStatus: 1 name string, 2 device_id uint64, 3 byte_size uint64
CudaSharedMemoryStatusResponse: 1 regions <CudaRegionStatus>
CudaSharedMemoryRegisterRequest: 1 name string, 2 raw_handle bytes, 3 device_id int64, 4 byte_size uint64
CudaSharedMemoryRegisterResponse
CudaSharedMemoryUnregisterRequest: 1 name string
CudaSharedMemoryUnregisterResponse
TraceValue: 1 value string*
TraceSettingRequest: 1 settings <TraceValue>, 2 model_name string
TraceSettingResponse: 1 settings <TraceValue>
LogValue: 1 bool_param bool|, 2 uint32_param uint32|, 3 string_param string|
LogSettingsRequest: 1 settings <LogValue>
LogSettingsResponse: 1 settings <LogValue>
ModelStatisticsRequest: 1 name string, 2 version string
ModelStatisticsResponse: 1 model_stats ModelStatistics*
"""

_FIELD = re.compile(r"(\d+) (\w+) (<?)(\w+)>?([*|?]?)$")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
}


@cache
def messages() -> Mapping[str, Any]:
    """Returns the protocol's message classes by name."""
    return _made_of(TABLE.rstrip() + config_messages.TABLE, config_messages.ENUMERATIONS)


def _made_of(table: str, enumerations: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
    """Returns the message classes of a table by name.

    enumerations: value names by enum name, numbered from 0.
    """
    file = descriptor_pb2.FileDescriptorProto(name="mgx_serve/inference.proto", package="inference", syntax="proto3")
    for name, values in enumerations.items():
        enumeration = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enumeration.value.add(name=value, number=number)
    rows = [" ".join(row.split()) for row in re.split(r"\n(?! )", table.strip())]
    for row in rows:
        name, _, fields = row.partition(": ")
        made = file.message_type.add(name=name)
        for text in filter(None, fields.split(", ")):
            _add(made, text, enumerations)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [row.partition(":")[0] for row in rows]
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{n}")) for n in names}


def _add(message: Any, text: str, enumerations: Mapping[str, Sequence[str]]) -> None:
    """Adds a field to a message type from its text, ``number name type``.

    ``*`` after the type: repeated; ``|``: one of several; ``<type>``: a map from strings; ``?``: zero differs from nothing.
    """
    matched = _FIELD.match(text)
    assert matched is not None, text
    number, name, mapped, kind, mark = matched.groups()
    field = message.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if mark == "*" or mapped else _Field.LABEL_OPTIONAL
    if mapped:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_SCALARS["string"], label=_Field.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        _set_type(value, kind, enumerations)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".inference.{message.name}.{entry.name}"
    else:
        _set_type(field, kind, enumerations)
    if mark == "|":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    elif mark == "?":
        message.oneof_decl.add(name=f"_{name}")  # protobuf represents an optional field as a oneof
        field.oneof_index, field.proto3_optional = len(message.oneof_decl) - 1, True


def _set_type(field: Any, kind: str, enumerations: Mapping[str, Sequence[str]]) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind in enumerations else _Field.TYPE_MESSAGE
        field.type_name = f".inference.{kind}"
