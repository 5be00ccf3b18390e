"""Images that are corrupt, large or of uncommon kinds, compared with TensorFlow 2.21."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgx_core import DeviceError, ShapeError
from mgx_core import dtype as dt
from mgx_core.types.memory_limit import limited
from mgx_tf.ops.image import DecodePicture, JpegExtents
from mgx_tf.ops.jpeg import jpeg
from mgx_tf.ops.jpeg_blocks import ZIGZAG, Component, Scan
from mgx_tf.ops.jpeg_huffman import Bits, table_of
from mgx_tf.ops.png_filters import unfiltered

FILES = {k: base64.b64decode(v) for k, v in json.loads((Path(__file__).parent / "pictures.json").read_text()).items()}
NOISE = FILES["noise"]


def text(data: bytes) -> np.ndarray:
    out = np.empty((), object)
    out[()] = data.decode("utf-8", "surrogateescape")
    return out


def decoded(data: bytes, channels: int = 0, **options: Any) -> np.ndarray:
    return DecodePicture(channels=channels, target=dt.uint8, **options).compute(text(data))


def scan_of(data: bytes) -> tuple[int, int]:
    """Returns the positions of the first scan and of its data."""
    at = data.index(b"\xff\xda")
    return at, at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def without_data(data: bytes) -> bytes:
    return data[: scan_of(data)[1]] + b"\xff\xd9"


@pytest.mark.parametrize("data", [NOISE[:-2], NOISE[:-40], NOISE[:-40] + b"\xff\xd9", without_data(NOISE)])
def test_scans_that_end_early_are_refused(data: bytes):
    with pytest.raises(ShapeError, match="is truncated"):
        jpeg(data)
    assert jpeg(data, recover=True).shape == (16, 16, 3)


def coefficients(bits: str) -> list[int]:
    """Returns a block decoded from bits. DC: 0 means 0. AC: 00 a number of 15 bits, 01 the end, 1000 one of 2 after three zeros."""
    direct = table_of(bytes([1, *bytes(15)]), b"\0")
    coded = table_of(bytes([0, 2, 0, 1, *bytes(12)]), b"\x0f\x00\x32")
    scan, block = Scan({(0, 0): direct, (1, 0): coded}, False, 0, 63, 0, 0), [0] * 64
    data = int(bits.ljust(104, "0"), 2).to_bytes(13, "big")
    scan.read(Bits(data.replace(b"\xff", b"\xff\0")), Component(1, 1, 0), block)
    return [block[place] for place in ZIGZAG.tolist()]


def test_codes_and_coefficients_of_blocks():
    """Numbers that the 16 bits ahead contain together with their code, and longer ones."""
    found = coefficients("0" + "00" + "0" * 14 + "1" + "1000" + "10" + "1000" + "01" + "01")
    assert found[:10] == [0, 1 - (1 << 15) + 1, 0, 0, 0, 2, 0, 0, 0, -2] and not any(found[10:])
    with pytest.raises(ShapeError, match="undefined Huffman code"):
        coefficients("011")
    with pytest.raises(ShapeError, match="too many coefficients"):
        coefficients("0" + "100011" * 16)


def test_existing_values_are_read_on_request(new_graph: Any):
    import mgx_core as mgx

    g = new_graph()
    g.placeholder("x", object, [])
    g.node("DecodeJpeg", "y", "x", channels=3, try_recover_truncated=True)
    program = mgx.parse_buffer(g.data, "tf")
    program.compile(mgx.get_target("ref"))
    (found,) = program.run({"x": text(NOISE[:-2])})
    np.testing.assert_array_equal(np.asarray(found), jpeg(NOISE))


@pytest.mark.parametrize(("part", "name"), [((0, 1), "cut_all"), ((1, 3), "cut_third"), ((3, 4), "cut_late")])
def test_the_unit_in_which_data_end_is_read_from_zeros_and_the_rest_is_gray(part: tuple[int, int], name: str):
    _, begin = scan_of(NOISE)
    data = NOISE[: begin + (len(NOISE) - begin) * part[0] // part[1]] + b"\xff\xd9"
    wanted = np.frombuffer(FILES[name], np.uint8).reshape(16, 16, 3)
    np.testing.assert_array_equal(jpeg(data, exact=True, recover=True), wanted)


def test_jpeg_files_have_one_frame_and_a_bounded_number_of_scans():
    at, _ = scan_of(NOISE)
    frame = NOISE.index(b"\xff\xc0")
    with pytest.raises(ShapeError, match="second frame header"):
        jpeg(NOISE[:at] + NOISE[frame:at] + NOISE[at:])
    scan = NOISE[at:-2]
    with pytest.raises(ShapeError, match="at most 256 scans"):
        jpeg(NOISE[:at] + scan * 300 + b"\xff\xd9")
    with pytest.raises(ShapeError, match="a scan of each component"):
        jpeg(NOISE[:at] + b"\xff\xd9")


@pytest.mark.parametrize("band", [(5, 4), (1, 64)])
def test_bands_that_do_not_exist_are_refused(band: tuple[int, int]):
    data = bytearray(FILES["progressive"])
    at = 0
    while True:
        at = data.index(b"\xff\xda", at + 1)
        if data[at + 4] == 1:
            break
    data[at + 7 : at + 9] = bytes(band)
    with pytest.raises(ShapeError, match="cannot contain the coefficients"):
        jpeg(bytes(data))


def test_planes_of_colors():
    """A file without a JFIF marker whose components are named R, G and B."""
    data = FILES["rgb"]
    for channels, name in ((1, "rgb_gray"), (3, "rgb_colors")):
        wanted = np.frombuffer(FILES[name], np.uint8).reshape(16, 16, channels)
        np.testing.assert_array_equal(decoded(data, channels, exact_transform=True), wanted)


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_four_planes_are_refused(channels: int):
    frame, scan = (
        (struct.pack(">H", 8 + 3 * 4), b"\x08\0\x08\0\x08\4" + b"".join(bytes([k, 0x11, 0]) for k in range(4))),
        b"",
    )
    scan = b"\xff\xda" + struct.pack(">H", 14) + b"\4" + b"".join(bytes([k, 0]) for k in range(4)) + b"\0\x3f\0"
    codes = b"".join(b"\xff\xc4" + struct.pack(">H", 20) + bytes([k, 1]) + bytes(16) for k in (0, 0x10))
    table = b"\xff\xdb" + struct.pack(">H", 67) + b"\0" + b"\1" * 64
    data = b"\xff\xd8" + table + b"\xff\xc0" + b"".join(frame) + codes + scan + b"\0\0\0\xff\xd9"
    with pytest.raises(ShapeError, match="four components"):
        decoded(data, channels)


def test_damage_is_an_error_of_ours():
    data = bytearray(NOISE)
    frame = data.index(b"\xff\xc0")
    for end in range(2, len(data), 7):
        with pytest.raises(ShapeError):
            decoded(bytes(data[:end]))
    with pytest.raises(ShapeError, match="JPEG file"):
        JpegExtents().compute(text(bytes(data[: frame + 12])))


def png(width: int, height: int, depth: int, kind: int, rows: bytes, clear: bytes = b"", palette: bytes = b"") -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    out += chunk(b"PLTE", palette) if palette else b""
    out += chunk(b"tRNS", clear) if clear else b""
    return out + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "channels", "wanted"),
    [
        (png(3, 1, 8, 0, b"\0\1\2\3", b"\0\2"), 0, [[[1], [2], [3]]]),
        (png(3, 1, 8, 0, b"\0\1\2\3", b"\0\2"), 4, [[[1, 1, 1, 255], [2, 2, 2, 0], [3, 3, 3, 255]]]),
        (png(4, 1, 2, 0, b"\0\x1b", b"\0\2"), 1, [[[0], [85], [170], [255]]]),
        (png(4, 1, 2, 0, b"\0\x1b", b"\0\2"), 4, [[[v, v, v, 0 if v == 170 else 255] for v in (0, 85, 170, 255)]]),
        (png(2, 1, 8, 2, b"\0\1\2\3\4\5\6", b"\0\4\0\5\0\6"), 4, [[[1, 2, 3, 255], [4, 5, 6, 0]]]),
        (png(2, 1, 16, 0, b"\0\1\2\3\4", b"\3\4"), 4, [[[1, 1, 1, 255], [3, 3, 3, 0]]]),
        (png(2, 1, 8, 3, b"\0\0\1", b"\7", b"\1\2\3\4\5\6"), 0, [[[1, 2, 3, 7], [4, 5, 6, 255]]]),
        (png(2, 1, 8, 3, b"\0\0\1", b"\7", b"\1\2\3\4\5\6"), 3, [[[1, 2, 3], [4, 5, 6]]]),
    ],
)
def test_colors_that_are_clear(data: bytes, channels: int, wanted: Any):
    np.testing.assert_array_equal(decoded(data, channels), wanted)


@pytest.mark.parametrize(("depth", "kind"), [(4, 2), (3, 0), (16, 3), (8, 1)])
def test_depths_that_do_not_exist_are_refused(depth: int, kind: int):
    with pytest.raises(ShapeError, match="bit depths"):
        decoded(png(2, 1, depth, kind, b"\0" + bytes(12)))


def test_one_bit_images_need_memory_for_their_pixels():
    data = png(1000, 1000, 1, 0, (b"\0" + b"\xaa" * 125) * 1000)
    with limited(1 << 22):
        np.testing.assert_array_equal(decoded(data)[..., 0], np.tile(np.uint8([255, 0]), (1000, 500)))
    with limited(1 << 20), pytest.raises(DeviceError, match="limit_bytes"):
        decoded(data)


@pytest.mark.parametrize(("rows", "columns", "step"), [(1, 9, 3), (17, 1, 4), (40, 7, 3), (20, 33, 2), (15, 20, 8)])
def test_filters_of_rows(rows: int, columns: int, step: int):
    """Compares with the filters' definition, byte by byte."""
    random = np.random.default_rng(0)
    lines = random.integers(0, 256, (rows, 1 + columns * step)).astype(np.uint8)
    lines[:, 0] = random.integers(0, 5, rows)
    out = np.zeros((rows + 1, (columns + 1) * step), int)
    for r, k in np.ndindex(rows, columns * step):
        left, above, corner = (int(v) for v in (out[r + 1, k], out[r, k + step], out[r, k]))
        guess = left + above - corner
        nearest = min((left, above, corner), key=lambda v: abs(guess - v))
        by = (0, left, above, (left + above) // 2, nearest)[lines[r, 0]]
        out[r + 1, k + step] = (int(lines[r, 1 + k]) + by) & 255
    np.testing.assert_array_equal(unfiltered(lines, step), out[1:, step:])
    lines[0, 0] = 5
    with pytest.raises(ShapeError, match="no filter 5"):
        unfiltered(lines, step)
