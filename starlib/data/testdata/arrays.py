"""Writes the arrays of this folder: NumPy's own bytes for the readers' tests.

Made with NumPy 1.24.2; run it in this folder.
"""
import gzip
import io

import numpy as np

plain = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
np.save("rows.npy", plain)
np.save("columns.npy", np.asfortranarray(np.arange(24, dtype=np.float64).reshape(2, 3, 4)))
np.save("bigendian.npy", np.array([1, -2, 300], dtype=">i4"))
np.save("scalar.npy", np.array(7, dtype=np.int64))
np.save("empty.npy", np.zeros((0, 3), dtype=np.float32))

types = {
    name: np.array([0, 1, 1], dtype=name)
    for name in "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64".split()
}
np.savez("types.npz", **types)
np.savez_compressed("packed.npz", a=plain, b=np.arange(3))

packed = io.BytesIO()
np.save(packed, plain)
with open("rows.npy.gz", "wb") as f:
    f.write(gzip.compress(packed.getvalue(), mtime=0))
