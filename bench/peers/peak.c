/* The most float32 multiply-adds a second that a core can do: independent chains of the widest vectors, each two operations a
   lane. Build: cc -O3 -march=native -pthread peak.c. Prints the figure of one core, and that of as many as the argument says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __AVX512F__
enum { bytes = 64, chains = 16 };
#elif defined __AVX2__
enum { bytes = 32, chains = 12 };
#else
enum { bytes = 16, chains = 20 };
#endif
typedef float lanes __attribute__((vector_size(bytes)));

enum { rounds = 200 * 1000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *multiply_add(void *result)
{
    lanes x[chains], a, b;
    for (int i = 0; i < (int)(bytes / sizeof(float)); i++)
        a[i] = 0.5f, b[i] = 0.25f;
#pragma GCC unroll 32
    for (int i = 0; i < chains; i++)
        x[i] = a * (float)i;
    for (int round = 0; round < rounds; round++)
#pragma GCC unroll 32
        for (int i = 0; i < chains; i++) {
            x[i] = x[i] * a + b;
            __asm__ volatile("" : "+v"(x[i])); /* or the compiler takes two rounds as one */
        }
    lanes sum = x[0];
#pragma GCC unroll 32
    for (int i = 1; i < chains; i++)
        sum += x[i];
    *(lanes *)result = sum;
    return NULL;
}

int main(int argc, char **argv)
{
    enum { most = 64, tries = 9 };
    static lanes results[most] __attribute__((aligned(bytes)));
    int cores = argc > 1 ? atoi(argv[1]) : 1;
    if (cores < 1 || cores > most)
        return 2;
    for (int n = 1; n <= cores; n += cores - 1) {
        double best = 0;
        for (int i = 0; i < tries; i++) {
            pthread_t threads[most];
            double started = now();
            for (int t = 1; t < n; t++)
                if (pthread_create(&threads[t], NULL, multiply_add, &results[t]))
                    return 1;
            multiply_add(&results[0]);
            for (int t = 1; t < n; t++)
                pthread_join(threads[t], NULL);
            double speed = 2.0 * n * rounds * chains * (bytes / sizeof(float)) / (now() - started) / 1e9;
            best = speed > best ? speed : best;
        }
        printf("peak of %d core%s: %.2f GFLOPS\n", n, n > 1 ? "s" : "", best);
        if (cores == 1)
            break;
    }
}
