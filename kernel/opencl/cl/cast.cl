// Conversions: OP is cast_TO_FROM.
#include "device.h"
#include "walk.h"
#define CAST(name, to, from, write, read) INLINE to cast_##name(from x) { return write(read(x)); }
#include "cast.h"
typedef struct complex64 pair;

KERNEL void run(struct walk w, GLOBAL OUT *o, long o_at, GLOBAL const IN *a, long a_at) {
    WALK(2);
    o[o_at + at[0]] = OP(a[a_at + at[1]]);
}
