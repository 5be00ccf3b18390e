"""Attribute types of ONNX operators.

Nearly every attribute name has the same type in all operators. These are tabulated here, since ONNX's schemas take longer to
load than most models take to parse; the schemas are consulted only for other names and for unexpected types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from .messages import onnx

__all__ = ["USUAL", "attribute_type", "attribute_types"]

NAMES: Final = {
    "FLOAT": """alpha beta bias clip cubic_coeff_a decay_factor default_float epsilon extrapolation_value gamma height_scale high
        lambd low max mean min momentum norm_coefficient norm_coefficient_post ratio replaced_value_float softcap spatial_scale
        threshold value_float width_scale""",
    "INT": """align_corners allowzero antialias axis batch_axis batch_dims block_size blocksize broadcast ceil_mode
        center_point_box chunk_size count_include_pad default_int64 detect_negative detect_positive dtype end exclude_outside
        exclusive fmod group hidden_size ignore_index input_forget interleaved inverse is_case_sensitive is_causal is_test k
        keepdims kv_num_heads largest layout left_window_size linear_before_reset max_gram_length max_map max_skip_count maxsplit
        min_gram_length multi_class n_supports n_targets new_axis noop_with_empty_axes num_groups num_heads num_outputs
        num_scan_inputs offset_group one_class onesided output_datatype output_dtype output_height output_sequence output_width
        periodic precision q_num_heads qk_matmul_output_mode replaced_value_int64 reverse right_window_size rotary_embedding_dim
        sample_size sampling_ratio saturate select_last_index size softmax_precision sorted spatial start stash_type
        storage_order targets time_axis training_mode transA transB upper value_int zeros""",
    "STRING": """activation approximate auto_pad case_change_action cast_to coordinate_transformation_mode default_string
        delimiter direction equation keep_aspect_ratio_policy kernel_type locale map_form mode nearest_mode norm padding_mode
        pattern pixel_format reduction round_mode update_rule value_string y""",
    "GRAPH": "body else_branch prob_mod score_mod then_branch",
    "FLOATS": """activation_alpha activation_beta base_values class_weights coefficients imputed_value_floats intercepts
        kernel_params keys_floats nodes_values offset prob_a prob_b rho scales support_vectors target_weights value_floats
        values_floats weights""",
    "INTS": """axes cats_int64s class_ids class_nodeids class_treeids classlabels_int64s classlabels_ints consumed_inputs
        dilations directions ends imputed_value_int64s inputdimensions int64_vocabulary kernel_shape keys_int64s leaf_targetids
        ngram_counts ngram_indexes nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_missing_value_tracks_true
        nodes_nodeids nodes_treeids nodes_trueleafs nodes_truenodeids output_padding output_shape paddings pads perm pool_int64s
        pooled_shape scan_input_axes scan_input_directions scan_output_axes scan_output_directions shape split starts strides
        target_ids target_nodeids target_treeids tree_roots value_ints values_int64s vectors_per_class""",
    "STRINGS": """activations cats_strings classes_strings classlabels_strings keys_strings pool_strings stopwords
        string_vocabulary value_strings values_strings xs zs""",
}
USUAL: Final[Mapping[str, int]] = {
    name: number
    for kind, names in NAMES.items()
    for number in (onnx.AttributeProto.AttributeType.Value(kind),)
    for name in names.split()
}
TENSORS: Final = frozenset({"Constant", "ConstantOfShape"})  # operators whose `value` is a tensor; Pad's was a number


def attribute_type(op_type: str, version: int, domain: str, name: str, given: int) -> int | None:
    """Returns the type of an operator's attribute (AttributeProto.AttributeType); None if ONNX does not define it.

    given: the type stated by the model, returned if it is the only possible one.
    """
    if USUAL.get(name) == given or (name == "value" and op_type in TENSORS and given == onnx.AttributeProto.TENSOR):
        return given
    return attribute_types(op_type, version, domain).get(name)


@cache
def attribute_types(op_type: str, version: int, domain: str) -> Mapping[str, int]:
    """Returns the types of an operator's attributes by name; empty if ONNX does not define the operator."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, version, domain)  # onnx's stubs lack half of what a schema has
    except (onnx.defs.SchemaError, TypeError):
        return {}
    return {name: int(a.type.value) for name, a in schema.attributes.items()}
