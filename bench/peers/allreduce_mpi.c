/* Latency of MPI_Allreduce of float32 by size, and of MPI_Barrier. Build: mpicc -O2. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank;

static void report(const char *what, double started, int calls)
{
    double mean = (MPI_Wtime() - started) / calls, slowest;
    MPI_Reduce(&mean, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: %.5f us\n", what, slowest * 1e6);
}

static void allreduce(float *x, int count, int calls)
{
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static const struct { int bytes, calls; } sizes[] = {
        {4, 20000}, {256, 20000}, {4096, 20000}, {65536, 3000}, {1 << 20, 500}, {16 << 20, 10}, {64 << 20, 5},
    };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int count = sizes[s].bytes / 4, calls = sizes[s].calls;
        float *x = malloc(sizes[s].bytes);
        for (int i = 0; i < count; i++)
            x[i] = 1;
        allreduce(x, count, calls / 10 + 2);
        MPI_Barrier(MPI_COMM_WORLD);
        char what[40];
        snprintf(what, sizeof what, "all_reduce %d B", sizes[s].bytes);
        double started = MPI_Wtime();
        allreduce(x, count, calls);
        report(what, started, calls);
        free(x);
    }
    double started = MPI_Wtime();
    for (int i = 0; i < 20000; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    report("barrier", started, 20000);
    MPI_Finalize();
}
