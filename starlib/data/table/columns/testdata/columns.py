"""Makes the Parquet and Arrow files here, and the cells that they hold as JSON lines: bin/exchange/bin/python columns.py"""

import datetime as dt
import decimal
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

ROWS = 23
EPOCH = dt.datetime(1970, 1, 1)


def column(make, every=5):
    return [None if i % every == 3 else make(i) for i in range(ROWS)]


def micros(t):
    return (t - EPOCH) // dt.timedelta(microseconds=1)


time = lambda i: EPOCH + dt.timedelta(days=37 * i - 100, seconds=i, milliseconds=7 * i)
fine = lambda i: time(i) + dt.timedelta(microseconds=i)
day = lambda i: dt.date(1969, 12, 20) + dt.timedelta(days=3 * i)
clock = lambda i: dt.time(i % 24, 3 * i % 60, i, 1000 * i)
texts = ["", "a", "ÄÖ", "日本語 😀", "longer than twelve bytes, which is where views begin"]

# name: type, the cells, the cells as they are read (None: the same)
columns = {
    "i8": (pa.int8(), column(lambda i: i - 128), None),
    "i16": (pa.int16(), column(lambda i: -32768 + i), None),
    "i32": (pa.int32(), column(lambda i: 2**31 - 1 - i), None),
    "i64": (pa.int64(), column(lambda i: -(2**63) + i), None),
    "u8": (pa.uint8(), column(lambda i: 255 - i), None),
    "u16": (pa.uint16(), column(lambda i: 65535 - i), None),
    "u32": (pa.uint32(), column(lambda i: 2**32 - 1 - i), None),
    "u64": (pa.uint64(), column(lambda i: 2**63 - 1 - i), None),
    "whole": (pa.int32(), list(range(ROWS)), None),
    "half": (pa.float16(), column(lambda i: np.float16([0.1, -2.5, 65504, 6e-8, math.inf, math.nan][i % 6])), lambda v: float(v)),
    "single": (pa.float32(), column(lambda i: [0.1, -0.0, 3e38, 1e-45, math.nan, -math.inf][i % 6]), lambda v: float(np.float32(v))),
    "double": (pa.float64(), column(lambda i: [0.1, -0.0, 1.7e308, 5e-324, math.nan, math.inf][i % 6]), None),
    "flag": (pa.bool_(), column(lambda i: i % 2 == 0), None),
    "text": (pa.string(), column(lambda i: texts[i % 5]), None),
    "large": (pa.large_string(), column(lambda i: texts[(i + 1) % 5]), None),
    "raw": (pa.binary(), column(lambda i: bytes([i, 0, 255])[: i % 4]), None),
    "fixed": (pa.binary(3), column(lambda i: bytes([i, 0, 255])), None),
    "city": (pa.dictionary(pa.int8(), pa.string()), column(lambda i: ["Rome", "Oslo", "Łódź"][i % 3]), None),
    "day": (pa.date32(), column(day), lambda v: micros(dt.datetime(v.year, v.month, v.day))),
    "seconds": (pa.timestamp("s"), column(lambda i: time(i).replace(microsecond=0)), micros),
    "millis": (pa.timestamp("ms"), column(time), micros),
    "micros": (pa.timestamp("us", "UTC"), column(fine), micros),
    "nanos": (pa.timestamp("ns"), column(fine), micros),
    "clock": (pa.time64("us"), column(clock), lambda v: micros(dt.datetime.combine(EPOCH, v))),
    "clock32": (pa.time32("ms"), column(clock), lambda v: micros(dt.datetime.combine(EPOCH, v))),
    "price": (pa.decimal128(9, 2), column(lambda i: decimal.Decimal(i * 12345 - 99) / 100), lambda v: float(v)),
    "wide": (pa.decimal128(30, 3), column(lambda i: decimal.Decimal(-i) / 8), lambda v: float(v)),
    "list": (pa.list_(pa.int64()), column(lambda i: [None if k == 2 else k - i for k in range(i % 5)]), None),
    "vector": (pa.list_(pa.float32(), 3), column(lambda i: [i / 2, float(-i), 0.25]), None),
    "nested": (pa.list_(pa.list_(pa.string())), column(lambda i: [["x"] * (k + 1) if k != 1 else None for k in range(i % 4)]), None),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), column(lambda i: {"a": i if i % 2 else None, "b": ["y"] * (i % 3)}), None),
    "map": (pa.map_(pa.string(), pa.int64()), column(lambda i: [("k%d" % k, k) for k in range(i % 3)]), lambda v: [{"key": k, "value": x} for k, x in v]),
    "null": (pa.null(), [None] * ROWS, None),
}


def plain(v):
    if isinstance(v, bytes):
        return "hex:" + v.hex()
    if isinstance(v, float) and not math.isfinite(v):
        return str(v)
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return v


table = pa.table({name: pa.array(cells, type) for name, (type, cells, _) in columns.items()})
with open("types.jsonl", "w", encoding="utf-8") as out:
    for i in range(ROWS):
        row = {}
        for name, (_, cells, told) in columns.items():
            v = cells[i]
            row[name] = plain(v if v is None or told is None else told(v))
        out.write(json.dumps(row, ensure_ascii=False) + "\n")

for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    pq.write_table(table, "%s.parquet" % codec, compression=codec, row_group_size=9, version="2.6")
pq.write_table(table, "v2.parquet", row_group_size=20, data_page_version="2.0", compression="zstd", use_dictionary=False, data_page_size=64, column_encoding={
    "whole": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "large": "DELTA_LENGTH_BYTE_ARRAY", "single": "BYTE_STREAM_SPLIT"})
pq.write_table(table.select(["whole", "i64", "text", "large", "flag", "city", "list", "nested", "double"]), "runs.parquet", data_page_version="2.0", compression="none", use_dictionary=["city"], column_encoding={
    "whole": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "large": "DELTA_LENGTH_BYTE_ARRAY", "flag": "RLE"})
old = table.drop_columns(["half", "null"]).cast(pa.schema([f if f.name != "nanos" else f.with_type(pa.timestamp("us")) for f in table.drop_columns(["half", "null"]).schema]))
pq.write_table(old, "int96.parquet", use_deprecated_int96_timestamps=True, version="1.0", use_compliant_nested_type=False)
feather.write_feather(table, "lz4.feather", compression="lz4", chunksize=9)
feather.write_feather(table, "plain.feather", compression="uncompressed", chunksize=9)
views = table.append_column("view", table["text"].cast(pa.string_view())).append_column("waited", pa.array(column(lambda i: dt.timedelta(milliseconds=-i)), pa.duration("ms")))
with ipc.new_stream("zstd.arrow", views.schema, options=ipc.IpcWriteOptions(compression="zstd")) as out:
    out.write_table(views, max_chunksize=9)

# Types that are not supported, and cells that do not fit.
odd = pa.table({"x": pa.array([1.0, 2.0]), "gap": pa.array([pa.MonthDayNano([1, 2, 3])] * 2), "either": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    "ends": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([7]))})
with ipc.new_file("odd.arrow", odd.schema) as out:
    out.write_table(odd)
pq.write_table(pa.table({"big": pa.array([2**64 - 1], pa.uint64()), "digits": pa.array([decimal.Decimal("12345678901234567.89")]), "nanos": pa.array([1001], pa.timestamp("ns")), "late": pa.array([2**61], pa.timestamp("ms"))}), "unfit.parquet", version="2.6")

# Streams: column n counts the rows, on from file to file.
schema = pa.schema([("a", pa.float64()), ("b", pa.int32()), ("n", pa.int64())])
for name, first, count in [("a", 0, 1300), ("b", 1300, 900), ("c", 2200, 40)]:
    n = np.arange(first, first + count)
    rows = pa.table({"a": n + 0.5, "b": -n, "n": n}).cast(schema)
    pq.write_table(rows, "../../testdata/%s.parquet" % name, row_group_size=301, compression="zstd")
    feather.write_feather(rows, "../../testdata/%s.feather" % name, chunksize=301)
people = pa.table({"name": ["Ann", "Bob", "Cid"], "age": pa.array([31, None, 29], pa.int8()), "city": pa.array(["Rome", "Oslo", "Rome"]).dictionary_encode(),
    "height": pa.array([1.5, 1.75, None], pa.float32()), "taken": pa.array([dt.datetime(2024, 2, 29, 12)] * 3, pa.timestamp("ms")), "marks": [[1, 2], [], [3]], "member": [True, False, True]})
pq.write_table(people, "../../testdata/people.parquet")
feather.write_feather(people, "../../testdata/people.feather")
