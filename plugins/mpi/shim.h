// Open MPI for the Go side: every function starts a nonblocking call, and polls until it is done or drun_mpi_stop is
// called. In the latter case the call is abandoned with its buffers, which the caller must keep. Counts and displacements
// are in bytes unless there is a type; they are ints, like MPI's. Functions return DONE, STOPPED, or FAILED with the
// reason in err.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { ERR_SIZE = 512 };
enum { DONE, STOPPED, FAILED };
enum { F32, F64, I64, I32 };
enum { SUM, PRODUCT, MIN, MAX };

typedef struct mpi_group mpi_group; // a communicator and its flag

const char *drun_mpi_version(void);
// Makes this process a part of MPI; blocks until all processes have called it.
int drun_mpi_init(int *rank, int *size, char *err);
void drun_mpi_finalize(void); // blocks until all have called it
void drun_mpi_progress(void); // lets pending calls make progress

mpi_group *drun_mpi_world(void);
// Makes a group of some ranks of another; blocks until they have all called it. NULL: it failed.
mpi_group *drun_mpi_split(mpi_group *of, const int *ranks, int n, int tag, char *err);
void drun_mpi_stop(mpi_group *g);
void drun_mpi_free(mpi_group *g); // not after drun_mpi_stop: what is under way uses it

int drun_mpi_barrier(mpi_group *g, char *err);
int drun_mpi_bcast(mpi_group *g, void *data, int n, int root, char *err);
int drun_mpi_allreduce(mpi_group *g, const void *send, void *recv, int n, int type, int op, char *err);
int drun_mpi_reduce(mpi_group *g, const void *send, void *recv, int n, int type, int op, int root, char *err);
int drun_mpi_allgather(mpi_group *g, const void *send, int n, void *recv, const int *counts, const int *at, char *err);
int drun_mpi_gather(mpi_group *g, const void *send, int n, void *recv, const int *counts, const int *at, int root, char *err);
int drun_mpi_scatter(mpi_group *g, const void *send, const int *counts, const int *at, void *recv, int n, int root, char *err);
int drun_mpi_alltoall(mpi_group *g, const void *send, const int *sent, const int *from, void *recv, const int *received, const int *at, char *err);
int drun_mpi_send(mpi_group *g, const void *data, int n, int to, int tag, char *err);
int drun_mpi_recv(mpi_group *g, void *data, int n, int from, int tag, char *err);
