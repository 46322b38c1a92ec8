// Chooses a path at start and forwards every kernel to it.
#define _DEFAULT_SOURCE // syscall
#include <stdlib.h>
#include <string.h>
#include "internal.h"
#if defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static int always(void) { return 1; }
#if defined __x86_64__ && !defined SCALAR_ONLY
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
static int has_avx512bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16") && drun_pairs_in_order(); }

// A process must ask the operating system for the use of the processor's tiles.
static int has_amx(void) {
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}
#endif

// In increasing order of preference.
static const struct {
    const struct kernels *table;
    int (*usable)(void);
} paths[] = {
    {&drun_scalar, always},
#if defined SCALAR_ONLY // the race detector does not see into C: its builds compile one path, quickly
#elif defined __x86_64__
    {&drun_avx2, has_avx2},
    {&drun_avx512, has_avx512},
    {&drun_avx512bf16, has_avx512bf16},
    {&drun_amx, has_amx},
#elif defined __aarch64__
    {&drun_neon, always},
#endif
};
enum { PATHS = sizeof paths / sizeof *paths };

static const struct kernels *active = &drun_scalar;

__attribute__((constructor)) static void choose(void) {
    int best = 0;
    const char *forced = getenv("DRUN_KERNEL");
    for (int i = 0; i < PATHS; i++) {
        if (!paths[i].usable()) continue;
        best = i;
        if (forced && !strcmp(forced, paths[i].table->name)) break;
    }
    active = paths[best].table;
}

int drun_path_count(void) { return PATHS; }
const char *drun_path_name(int i) { return paths[i].table->name; }
int drun_path_usable(int i) { return paths[i].usable(); }
void drun_set_path(int i) { active = paths[i].table; }
int drun_path(void) {
    int i = 0;
    while (paths[i].table != active) i++;
    return i;
}

#define KERNEL(name, params, args) \
    void drun_##name params { active->name args; }
#define SCRATCHED(name, params, args)                                      \
    int64_t drun_##name params {                                           \
        uint64_t before = scratch_failures();                              \
        active->name args;                                                 \
        return scratch_failures() == before ? 0 : scratch_missing();       \
    }
#include "api.h"
