//go:build mpi

#include "shim.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct mpi_group {
	MPI_Comm comm;
	int stop;
};

static MPI_Datatype type_of(int type) {
	switch (type) {
	case F32: return MPI_FLOAT;
	case F64: return MPI_DOUBLE;
	case I64: return MPI_INT64_T;
	default: return MPI_INT32_T;
	}
}

static MPI_Op op_of(int op) {
	switch (op) {
	case SUM: return MPI_SUM;
	case PRODUCT: return MPI_PROD;
	case MIN: return MPI_MIN;
	default: return MPI_MAX;
	}
}

static int failed(int code, const char *what, char *err) {
	char text[MPI_MAX_ERROR_STRING] = "";
	int length = 0;
	MPI_Error_string(code, text, &length);
	snprintf(err, ERR_SIZE, "%s: %s", what, text);
	return FAILED;
}

// finish waits for a request, first without giving up the core, then with longer and longer pauses.
static int finish(mpi_group *g, int code, MPI_Request request, const char *what, char *err) {
	if (code != MPI_SUCCESS)
		return failed(code, what, err);
	for (long tries = 0;; tries++) {
		int done = 0;
		code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
		if (code != MPI_SUCCESS)
			return failed(code, what, err);
		if (done)
			return DONE;
		if (__atomic_load_n(&g->stop, __ATOMIC_ACQUIRE))
			return STOPPED;
		if (tries > 20000) {
			struct timespec pause = {0, tries > 40000 ? 200000 : 20000};
			nanosleep(&pause, NULL);
		} else if (tries > 100) {
			sched_yield();
		}
	}
}

const char *drun_mpi_version(void) {
	static char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length = 0;
	MPI_Get_library_version(text, &length);
	text[strcspn(text, ",")] = 0;
	return text;
}

int drun_mpi_init(int *rank, int *size, char *err) {
	int provided = 0, flag = 0;
	MPI_Initialized(&flag);
	if (!flag) {
		int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
		if (code != MPI_SUCCESS)
			return failed(code, "MPI_Init_thread", err);
	} else {
		MPI_Query_thread(&provided);
	}
	if (provided < MPI_THREAD_MULTIPLE) {
		snprintf(err, ERR_SIZE, "this Open MPI was built without support for several threads (MPI_THREAD_MULTIPLE)");
		return FAILED;
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); // communicators made from it inherit this
	MPI_Comm_rank(MPI_COMM_WORLD, rank);
	MPI_Comm_size(MPI_COMM_WORLD, size);
	return DONE;
}

void drun_mpi_finalize(void) { MPI_Finalize(); }

void drun_mpi_progress(void) {
	int flag = 0;
	MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

static mpi_group *group_of(MPI_Comm comm) {
	mpi_group *g = calloc(1, sizeof *g);
	if (g)
		g->comm = comm;
	return g;
}

mpi_group *drun_mpi_world(void) { return group_of(MPI_COMM_WORLD); }

mpi_group *drun_mpi_split(mpi_group *of, const int *ranks, int n, int tag, char *err) {
	MPI_Group all, some;
	MPI_Comm comm = MPI_COMM_NULL;
	MPI_Comm_group(of->comm, &all);
	int code = MPI_Group_incl(all, n, ranks, &some);
	MPI_Group_free(&all);
	if (code == MPI_SUCCESS) {
		code = MPI_Comm_create_group(of->comm, some, tag, &comm);
		MPI_Group_free(&some);
	}
	if (code != MPI_SUCCESS) {
		failed(code, "MPI_Comm_create_group", err);
		return NULL;
	}
	return group_of(comm);
}

void drun_mpi_stop(mpi_group *g) { __atomic_store_n(&g->stop, 1, __ATOMIC_RELEASE); }

void drun_mpi_free(mpi_group *g) {
	if (g->comm != MPI_COMM_WORLD)
		MPI_Comm_free(&g->comm);
	free(g);
}

#define CALL(function, ...)                                               \
	MPI_Request request = MPI_REQUEST_NULL;                               \
	int code = function(__VA_ARGS__, &request);                           \
	return finish(g, code, request, #function, err)

int drun_mpi_barrier(mpi_group *g, char *err) { CALL(MPI_Ibarrier, g->comm); }

int drun_mpi_bcast(mpi_group *g, void *data, int n, int root, char *err) { CALL(MPI_Ibcast, data, n, MPI_BYTE, root, g->comm); }

int drun_mpi_allreduce(mpi_group *g, const void *send, void *recv, int n, int type, int op, char *err) {
	CALL(MPI_Iallreduce, send == recv ? MPI_IN_PLACE : send, recv, n, type_of(type), op_of(op), g->comm);
}

int drun_mpi_reduce(mpi_group *g, const void *send, void *recv, int n, int type, int op, int root, char *err) {
	CALL(MPI_Ireduce, recv != NULL && send == recv ? MPI_IN_PLACE : send, recv, n, type_of(type), op_of(op), root, g->comm);
}

int drun_mpi_allgather(mpi_group *g, const void *send, int n, void *recv, const int *counts, const int *at, char *err) {
	if (counts == NULL) {
		CALL(MPI_Iallgather, send, n, MPI_BYTE, recv, n, MPI_BYTE, g->comm);
	}
	CALL(MPI_Iallgatherv, send, n, MPI_BYTE, recv, counts, at, MPI_BYTE, g->comm);
}

int drun_mpi_gather(mpi_group *g, const void *send, int n, void *recv, const int *counts, const int *at, int root, char *err) {
	if (counts == NULL) {
		CALL(MPI_Igather, send, n, MPI_BYTE, recv, n, MPI_BYTE, root, g->comm);
	}
	CALL(MPI_Igatherv, send, n, MPI_BYTE, recv, counts, at, MPI_BYTE, root, g->comm);
}

int drun_mpi_scatter(mpi_group *g, const void *send, const int *counts, const int *at, void *recv, int n, int root, char *err) {
	if (counts == NULL) {
		CALL(MPI_Iscatter, send, n, MPI_BYTE, recv, n, MPI_BYTE, root, g->comm);
	}
	CALL(MPI_Iscatterv, send, counts, at, MPI_BYTE, recv, n, MPI_BYTE, root, g->comm);
}

int drun_mpi_alltoall(mpi_group *g, const void *send, const int *sent, const int *from, void *recv, const int *received, const int *at, char *err) {
	CALL(MPI_Ialltoallv, send, sent, from, MPI_BYTE, recv, received, at, MPI_BYTE, g->comm);
}

int drun_mpi_send(mpi_group *g, const void *data, int n, int to, int tag, char *err) { CALL(MPI_Isend, data, n, MPI_BYTE, to, tag, g->comm); }

int drun_mpi_recv(mpi_group *g, void *data, int n, int from, int tag, char *err) { CALL(MPI_Irecv, data, n, MPI_BYTE, from, tag, g->comm); }
