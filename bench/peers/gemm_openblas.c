/* Speed of OpenBLAS's sgemm. The library is opened at run time: Debian's libopenblas0-pthread has no header.
   Build: cc -O2 gemm_openblas.c -ldl. Run with shapes as arguments: m n k ... */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { row_major = 101, no_trans = 111 };
typedef void sgemm_function(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                            float *, int);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static float *filled(size_t n)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rand() / RAND_MAX;
    return x;
}

int main(int argc, char **argv)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    sgemm_function *sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
    for (int i = 1; i + 2 < argc; i += 3) {
        int m = atoi(argv[i]), n = atoi(argv[i + 1]), k = atoi(argv[i + 2]);
        float *a = filled((size_t)m * k), *b = filled((size_t)k * n), *c = filled((size_t)m * n);
        double work = 2.0 * m * n * k;
        int calls = (int)(2e9 / work) + 1;
        for (int warmup = 0; warmup < calls / 10 + 2; warmup++)
            sgemm(row_major, no_trans, no_trans, m, n, k, 1, a, k, b, n, 0, c, n);
        double started = now();
        for (int call = 0; call < calls; call++)
            sgemm(row_major, no_trans, no_trans, m, n, k, 1, a, k, b, n, 0, c, n);
        printf("gemm %dx%dx%d: %.2f GFLOPS\n", m, n, k, work * calls / (now() - started) / 1e9);
        free(a), free(b), free(c);
    }
}
