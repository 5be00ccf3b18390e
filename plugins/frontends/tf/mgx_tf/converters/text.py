"""Strings and ragged tensors."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import product

from ..converter import converts, converts_values
from ..node import Node
from ..values import Ragged, Value


@converts("StringLower", "StringUpper")
def case(n: Node, x: Instruction) -> Instruction:
    how = "lower" if n.op_type == "StringLower" else "upper"
    return n.add("tf_string_case", x, how=how, unicode=n.string("encoding", "").lower() == "utf-8")


@converts("StringStrip")
def strip(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_string_case", x, how="strip")


@converts("StaticRegexReplace")
def static_regex_replace(n: Node, x: Instruction) -> Instruction:
    return n.add(
        "tf_regex_replace",
        x,
        pattern=n.string("pattern"),
        rewrite=n.string("rewrite"),
        everywhere=n.flag("replace_global", True),
    )


@converts("RegexReplace")
def regex_replace(n: Node, x: Instruction, pattern: Instruction, rewrite: Instruction) -> Instruction:
    words = [str(n.require(v, w).reshape(-1)[0]) for v, w in ((pattern, "the pattern"), (rewrite, "the rewrite"))]
    return n.add("tf_regex_replace", x, pattern=words[0], rewrite=words[1], everywhere=n.flag("replace_global", True))


@converts("StaticRegexFullMatch")
def static_regex_match(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_regex_match", x, pattern=n.string("pattern"))


@converts("RegexFullMatch")
def regex_match(n: Node, x: Instruction, pattern: Instruction) -> Instruction:
    return n.add("tf_regex_match", x, pattern=str(n.require(pattern, "the pattern").reshape(-1)[0]))


@converts("StringSplit")
def split(n: Node, x: Instruction, delimiter: Instruction) -> Any:
    word = str(n.require(delimiter, "the delimiter").reshape(-1)[0])
    made = n.add("tf_string_split", x, delimiter=word, each=True, skip_empty=n.flag("skip_empty", True))
    return n.items(made)


@converts("StringSplitV2")
def split_v2(n: Node, x: Instruction, delimiter: Instruction) -> Any:
    word = str(n.require(delimiter, "the delimiter").reshape(-1)[0])
    return n.items(n.add("tf_string_split", x, delimiter=word, most=n.int("maxsplit", -1)))


@converts("StringJoin")
def join(n: Node, *xs: Instruction) -> Instruction:
    separator = n.string("separator", "")
    given = list(n.broadcast(*xs))
    made = given[0]
    for x in given[1:]:
        made = n.add("tf_string_join", made, x, separator=separator)
    return made


@converts("ReduceJoin")
def reduce_join(n: Node, x: Instruction, axes: Instruction) -> Instruction:
    return n.add(
        "tf_string_reduce_join",
        x,
        axes=n.axes(n.whole(axes, "the axes"), x.shape.rank) if axes.shape.dims != (0,) else tuple(range(x.shape.rank)),
        separator=n.string("separator", ""),
        keep=n.flag("keep_dims"),
    )


@converts("StringNGrams")
def ngrams(n: Node, words: Instruction, splits: Instruction) -> Any:
    return n.items(
        n.add(
            "tf_string_ngrams",
            words,
            splits,
            separator=n.string("separator"),
            widths=tuple(n.ints("ngram_widths")),
            left=n.string("left_pad", ""),
            right=n.string("right_pad", ""),
            pad=n.int("pad_width", 0),
            short=n.flag("preserve_short_sequences"),
        )
    )


@converts("UnicodeDecode")
def unicode_decode(n: Node, x: Instruction) -> Any:
    instead, controls = n.int("replacement_char", 0xFFFD), n.flag("replace_control_characters")
    splits, points = n.items(n.add("tf_unicode_decode", _text_in_utf8(n, x), instead=instead, controls=controls))
    return n.convert(splits, n.dtype("Tsplits", dt.int64)), points


@converts("UnicodeDecodeWithOffsets")
def unicode_decode_with_offsets(n: Node, x: Instruction) -> Any:
    splits, points = unicode_decode(n, x)
    return splits, points, n.add("tf_unicode_offsets", x)


@converts("UnicodeEncode")
def unicode_encode(n: Node, points: Instruction, splits: Instruction) -> Instruction:
    encoding, errors = n.string("output_encoding"), n.string("errors", "replace")
    if encoding not in ("UTF-8", "UTF-16-BE", "UTF-32-BE") or errors == "strict":
        n.unsupported(f"text in {encoding!r} with errors={errors!r}")
    instead = n.int("replacement_char", 0xFFFD) if errors == "replace" else -1
    return n.add("tf_unicode_encode", points, n.convert(splits, dt.int64), encoding=encoding, instead=instead)


@converts("UnicodeTranscode")
def unicode_transcode(n: Node, x: Instruction) -> Instruction:
    splits, points = n.items(
        n.add(
            "tf_unicode_decode",
            _text_in_utf8(n, n.reshape(x, (product(x.shape.dims),))),
            instead=n.int("replacement_char", 0xFFFD),
            controls=n.flag("replace_control_characters"),
        )
    )
    return n.reshape(unicode_encode(n, points, splits), x.shape.dims)


def _text_in_utf8(n: Node, x: Instruction) -> Instruction:
    if n.string("input_encoding").upper() not in ("UTF-8", "UTF8") or n.string("errors", "replace") != "replace":
        n.unsupported("encodings other than UTF-8, or error handling other than replacement")
    return x


@converts("StringToHashBucketFast")
def hash_bucket(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_hash_bucket", x, buckets=n.int("num_buckets"))


@converts("StringToHashBucketStrong")
def hash_bucket_strong(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_hash_bucket_strong", x, buckets=n.int("num_buckets"), key=tuple(n.ints("key")))


@converts("EncodeBase64", "DecodeBase64")
def base64(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_base64", x, back=n.op_type == "DecodeBase64", padded=n.flag("pad"))


@converts("StringLength")
def length(n: Node, x: Instruction) -> Instruction:
    return n.convert(n.add("tf_string_length", x, unicode=n.string("unit", "BYTE") == "UTF8_CHAR"), dt.int32)


@converts("Substr")
def substr(n: Node, x: Instruction, start: Instruction, count: Instruction) -> Instruction:
    args = n.broadcast(x, n.convert(start, dt.int64), n.convert(count, dt.int64))
    return n.add("tf_substr", *args, unicode=n.string("unit", "BYTE") == "UTF8_CHAR")


@converts("UnicodeScript")
def unicode_script(n: Node, points: Instruction) -> Instruction:
    return n.add("tf_unicode_script", points)


@converts("AsString")
def as_string(n: Node, x: Instruction) -> Instruction:
    return n.add(
        "tf_as_string",
        x,
        precision=n.int("precision", -1),
        scientific=n.flag("scientific"),
        shortest=n.flag("shortest"),
        width=n.int("width", -1),
        fill=n.string("fill", ""),
    )


@converts("StringToNumber")
def to_number(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_string_to_number", x, target=n.dtype("out_type", dt.float32))


@converts_values("RaggedTensorToVariant")
def to_variant(n: Node, *xs: Value) -> Value:
    parts = [x for x in xs if isinstance(x, Instruction)]
    return Ragged(tuple(parts[:-1]), parts[-1])


@converts_values("RaggedTensorFromVariant")
def from_variant(n: Node, x: Value) -> Any:
    if not isinstance(x, Ragged):
        n.fail("a ragged tensor is required")
    return (*x.splits, x.values)


@converts_values("RaggedTensorToTensor")
def to_tensor(n: Node, shape: Instruction, values: Instruction, default: Instruction, *rows: Instruction) -> Value:
    kinds = n.strings("row_partition_types")
    wanted = n.dims(shape)
    if wanted is None:
        n.unsupported("extents that are known only at run time")
    return n.add(
        "tf_ragged_to_tensor",
        values,
        default,
        *(n.convert(r, dt.int64) for r in rows),
        kinds=tuple(kinds),
        dims=tuple(wanted),
    )


@converts("RaggedRange")
def ragged_range(n: Node, starts: Instruction, limits: Instruction, deltas: Instruction) -> Any:
    splits, values = n.items(n.add("tf_ragged_range", *n.broadcast(starts, limits, deltas)))
    return n.convert(splits, n.dtype("Tsplits", dt.int64)), values


@converts("RaggedGather")
def ragged_gather(n: Node, *xs: Instruction) -> Any:
    """Gathers rows of a ragged tensor, one ragged axis after the other."""
    *splits, values, indices = xs
    at, made = n.convert(indices, dt.int64), []
    for split in splits:
        inner = n.add("dynamic_range", *(n.reshape(v, ()) for v in _count(n, split)))
        rows, at = n.items(n.add("tf_ragged_gather", n.convert(split, dt.int64), inner, at))
        made.append(n.convert(rows, split.shape.dtype))
    return (*made, n.add("gather", values, at, axis=0))


def _count(n: Node, split: Instruction) -> tuple[Instruction, ...]:
    """Returns begin, end and step of the value indices that row splits cover."""
    last = n.add("gather", n.convert(split, dt.int64), n.literal([-1], dt.int64), axis=0)
    return n.literal([0], dt.int64), last, n.literal([1], dt.int64)
