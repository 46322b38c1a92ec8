// The C face of the Gloo library, as cgo sees it. Functions that can fail
// return a negative number and write what happened into err, ERR_SIZE bytes.
#ifndef DRUN_GLOO_SHIM_H
#define DRUN_GLOO_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ERR_SIZE = 1024, INLINE_SIZE = 1024 };

// As package dtype numbers them.
enum { FLOAT32 = 1, FLOAT64, INT64, INT32, INT8, UINT8, BOOL, FLOAT16, BFLOAT16, COMPLEX64 };
enum { SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR };

// The Gloo functions that are called, each with a counter.
enum {
    ALLREDUCE, BROADCAST, REDUCE, ALLGATHER, ALLGATHERV, GATHER, GATHERV, SCATTER, SCATTERV,
    ALLTOALLV, BARRIER, SEND, RECV, FUNCTIONS
};

typedef struct device device;
typedef struct group group;

// What a message begins with; small ones are in it.
typedef struct {
    int64_t tag;
    uint64_t bytes;
    uint64_t slot;
    uint64_t dtype;
    char data[INLINE_SIZE];
} header;

// A device is this rank's place in the network: an interface by its name, or
// an address of this machine.
device *drun_gloo_device(const char *interface, const char *address, char *name, char *err);
// share returns another reference to the same device, to be freed separately.
device *drun_gloo_device_share(device *d);
void drun_gloo_device_free(device *d);

// A group is given a connected socket to each peer, which it owns from then on; address is for error messages. A thread
// that waits looks `pauses` times, then `yields` times after letting another process run, before it sleeps.
group *drun_gloo_group(device *d, int rank, int size, int pauses, int yields, char *err);
int drun_gloo_connect(group *g, int peer, int socket, const char *address, char *err);
int drun_gloo_ready(group *g, char *err);
void drun_gloo_interrupt(group *g);
void drun_gloo_leave(group *g);
void drun_gloo_free(group *g);

// What became of a peer: 0 there, 1 left in good order, -1 lost.
int drun_gloo_peer(group *g, int peer, char *err);

// Collectives. Sizes are in bytes, but in reductions n counts elements, of elem bytes each; counts are the bytes of each
// rank's part.
int drun_gloo_allreduce(group *g, int dtype, int op, size_t elem, const void *in, void *out, size_t n, char *err);
int drun_gloo_reduce(group *g, int dtype, int op, size_t elem, const void *in, void *out, size_t n, int root, char *err);
int drun_gloo_broadcast(group *g, void *data, size_t n, int root, char *err);
int drun_gloo_allgather(group *g, const void *in, size_t n, void *out, const int64_t *counts, char *err);
int drun_gloo_gather(group *g, const void *in, size_t n, void *out, const int64_t *counts, int root, char *err);
int drun_gloo_scatter(group *g, const void *in, void *out, size_t n, const int64_t *counts, int root, char *err);
int drun_gloo_alltoallv(group *g, const void *in, const int64_t *sent, void *out, const int64_t *received, char *err);
int drun_gloo_barrier(group *g, char *err);

// Messages: next returns 1 and a header, or 0 once the group is stopped.
int drun_gloo_send(group *g, int to, header *h, void *data, char *err);
int drun_gloo_next(group *g, int *from, header *h, char *err);
int drun_gloo_fetch(group *g, int from, uint64_t slot, void *data, size_t n, char *err);
void drun_gloo_stop(group *g);

// Paired messages: post starts one, and returns 1 if it has ended already. Otherwise ended reports its end: it waits until
// some have ended, and returns how many; 0 if none is under way.
typedef struct transfer transfer;
typedef struct {
    uint64_t key;
    int rc;
    char err[ERR_SIZE];
} transfer_end;
int drun_gloo_post(group *g, uint64_t key, int sends, int peer, int64_t tag, void *data, size_t n, char *err);
int drun_gloo_ended(group *g, transfer_end *ends, int most);

const char *drun_gloo_version(void);

void drun_gloo_calls(group *g, int64_t *calls);

#ifdef __cplusplus
}
#endif
#endif
