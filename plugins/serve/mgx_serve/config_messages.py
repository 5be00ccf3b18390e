"""The protobuf messages of Triton's model configuration, as a table.

Source: the field names and numbers of Triton's model configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["ENUMERATIONS", "NAMES", "TABLE"]

# the protocol's element types by Triton's enum values from 1 on; text may use either
_NUMBERS: Final = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64"),
)
NAMES: Final = {f"TYPE_{name}": name for name in _NUMBERS} | {"TYPE_STRING": "BYTES", "TYPE_BF16": "BF16"}
ENUMERATIONS: Final[Mapping[str, Sequence[str]]] = {
    "DataType": ("TYPE_INVALID", *NAMES),
    "Format": ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"),
    "InstanceKind": ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"),
    "SecondaryKind": ("KIND_NVDLA",),
    "BatchInputKind": (
        "BATCH_ELEMENT_COUNT",
        "BATCH_ACCUMULATED_ELEMENT_COUNT",
        "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
        "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
        "BATCH_ITEM_SHAPE",
        "BATCH_ITEM_SHAPE_FLATTEN",
    ),
    "BatchOutputKind": ("BATCH_SCATTER_WITH_INPUT_SHAPE",),
    "Urgency": ("PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN"),
    "TimeoutAction": ("REJECT", "DELAY"),
    "ControlKind": (
        "CONTROL_SEQUENCE_START",
        "CONTROL_SEQUENCE_READY",
        "CONTROL_SEQUENCE_END",
        "CONTROL_SEQUENCE_CORRID",
    ),
}
TABLE: Final = """
RateResource: 1 name string, 2 global bool, 3 count uint32
RateLimiter: 1 resources RateResource*, 2 priority uint32
SecondaryDevice: 1 kind SecondaryKind, 2 device_id int64
InstanceGroup: 1 name string, 4 kind InstanceKind, 2 count int32, 6 rate_limiter RateLimiter, 3 gpus int32*,
 8 secondary_devices SecondaryDevice*, 5 profile string*, 7 passive bool, 9 host_policy string
Reshape: 1 shape int64*
ModelInput: 1 name string, 2 data_type DataType, 3 format Format, 4 dims int64*, 5 reshape Reshape, 6 is_shape_tensor bool,
 7 allow_ragged_batch bool, 8 optional bool, 9 is_non_linear_format_io bool
ModelOutput: 1 name string, 2 data_type DataType, 3 dims int64*, 5 reshape Reshape, 4 label_filename string,
 6 is_shape_tensor bool, 7 is_non_linear_format_io bool
BatchInput: 1 kind BatchInputKind, 2 target_name string*, 3 data_type DataType, 4 source_input string*
BatchOutput: 1 target_name string*, 2 kind BatchOutputKind, 3 source_input string*
LatestVersions: 1 num_versions uint32
AllVersions
SpecificVersions: 1 versions int64*
VersionPolicy: 1 latest LatestVersions, 2 all AllVersions, 3 specific SpecificVersions
Graph: 1 level int32
GraphShape: 1 dim int64*
GraphBound: 1 batch_size int32, 2 input <GraphShape>
GraphSpec: 1 batch_size int32, 2 input <GraphShape>, 3 graph_lower_bound GraphBound
Cuda: 1 graphs bool, 2 busy_wait_events bool, 3 graph_spec GraphSpec*, 4 output_copy_stream bool
Accelerator: 1 name string, 2 parameters <string>
Accelerators: 1 gpu_execution_accelerator Accelerator*, 2 cpu_execution_accelerator Accelerator*
PinnedMemory: 1 enable bool
Optimization: 1 graph Graph, 2 priority Urgency, 3 cuda Cuda, 4 execution_accelerators Accelerators,
 5 input_pinned_memory PinnedMemory, 6 output_pinned_memory PinnedMemory, 7 gather_kernel_buffer_threshold uint32,
 8 eager_batching bool
QueuePolicy: 1 timeout_action TimeoutAction, 2 default_timeout_microseconds uint64, 3 allow_timeout_override bool,
 4 max_queue_size uint32
QueuePolicyByLevel: 1 key uint64, 2 value QueuePolicy
DynamicBatching: 1 preferred_batch_size int32*, 2 max_queue_delay_microseconds uint64, 3 preserve_ordering bool,
 4 priority_levels uint64, 5 default_priority_level uint64, 6 default_queue_policy QueuePolicy,
 7 priority_queue_policy QueuePolicyByLevel*
Control: 1 kind ControlKind, 2 int32_false_true int32*, 3 fp32_false_true float*, 5 bool_false_true bool*, 4 data_type DataType
ControlInput: 1 name string, 2 control Control*
InitialState: 1 data_type DataType, 2 dims int64*, 3 zero_data bool, 4 data_file string, 5 name string
State: 1 input_name string, 2 output_name string, 3 data_type DataType, 4 dims int64*, 5 initial_state InitialState*,
 6 use_same_buffer_for_input_output bool, 7 use_growable_memory bool
Direct: 1 max_queue_delay_microseconds uint64, 2 minimum_slot_utilization float
Oldest: 1 max_candidate_sequences int32, 2 preferred_batch_size int32*, 3 max_queue_delay_microseconds uint64,
 4 preserve_ordering bool
SequenceBatching: 3 direct Direct, 4 oldest Oldest, 1 max_sequence_idle_microseconds uint64, 2 control_input ControlInput*,
 5 state State*, 6 iterative_sequence bool
EnsembleStep: 1 model_name string, 2 model_version int64, 3 input_map <string>, 4 output_map <string>, 5 model_namespace string
Ensemble: 1 step EnsembleStep*, 2 max_inflight_requests uint32
ModelParameter: 1 string_value string
WarmupInput: 1 data_type DataType, 2 dims int64*, 3 zero_data bool, 4 random_data bool, 5 input_data_file string
Warmup: 1 name string, 2 batch_size uint32, 3 inputs <WarmupInput>, 4 count uint32
ModelOperations: 1 op_library_filename string*
TransactionPolicy: 1 decoupled bool
RepositoryAgent: 1 name string, 2 parameters <string>
RepositoryAgents: 1 agents RepositoryAgent*
ResponseCache: 1 enable bool
MetricIdentifier: 1 family string
HistogramOptions: 1 buckets double*
MetricControl: 1 metric_identifier MetricIdentifier, 2 histogram_options HistogramOptions
ModelMetrics: 1 metric_control MetricControl*
ModelConfig: 1 name string, 2 platform string, 17 backend string, 25 runtime string, 3 version_policy VersionPolicy,
 4 max_batch_size int32?, 5 input ModelInput*, 6 output ModelOutput*, 20 batch_input BatchInput*, 21 batch_output BatchOutput*,
 12 optimization Optimization, 11 dynamic_batching DynamicBatching, 13 sequence_batching SequenceBatching,
 15 ensemble_scheduling Ensemble, 7 instance_group InstanceGroup*, 8 default_model_filename string,
 9 cc_model_filenames <string>, 10 metric_tags <string>, 14 parameters <ModelParameter>, 16 model_warmup Warmup*,
 18 model_operations ModelOperations, 19 model_transaction_policy TransactionPolicy, 23 model_repository_agents RepositoryAgents,
 24 response_cache ResponseCache, 26 model_metrics ModelMetrics
ModelConfigRequest: 1 name string, 2 version string
ModelConfigResponse: 1 config ModelConfig
"""
