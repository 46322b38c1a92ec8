// Open MPI for the Go side: every function starts a call that does not block, and looks whether it is done until it is or
// *stop becomes 1. Then the call is left to itself, with its buffers; the caller keeps them. Counts and displacements are of
// bytes but where there is a type; they are ints, as MPI's. Functions return 0, STOPPED, or FAILED with the reason in err.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { ERR_SIZE = 512 };
enum { DONE, STOPPED, FAILED };
enum { F32, F64, I64, I32 };
enum { SUM, PRODUCT, MIN, MAX };

typedef struct mpi_group mpi_group; // a communicator and its flag

const char *drun_mpi_version(void);
// Takes part in MPI as one of its processes; blocks until all have come.
int drun_mpi_init(int *rank, int *size, char *err);
void drun_mpi_finalize(void); // blocks until all have come to it
void drun_mpi_progress(void); // lets what is under way go on

mpi_group *drun_mpi_world(void);
// Of some ranks of another; blocks until all have called it. NULL: it failed.
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
