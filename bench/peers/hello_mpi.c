/* Start, one all_reduce, exit. Build: mpicc -O2. */
#include <mpi.h>

int main(int argc, char **argv)
{
    float x = 1;
    MPI_Init(&argc, &argv);
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
}
