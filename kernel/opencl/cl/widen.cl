// Operands of products in bfloat16 as float32, each matrix with its rows one after the other: IN is ushort, or float, which is rounded to bfloat16.
#include "device.h"
#define CAST(name, to, from, write, read)
#include "cast.h"
#ifdef WIDE
#define READ(x) widen_bf16(narrow_bf16(x))
#else
#define READ(x) widen_bf16(x)
#endif

KERNEL void widen(GLOBAL float *o, GLOBAL const IN *a, long a_at, long rows, long columns, long row, long column, long step) {
    long j = get_global_id(0), i = get_global_id(1), batch = get_global_id(2);
    if (j < columns) o[(batch * rows + i) * columns + j] = READ(a[a_at + batch * step + i * row + j * column]);
}
