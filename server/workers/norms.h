/*
 * norms.h - the norms of the canaries of all GPUs that were ever seen, by UUID,
 * driver and kind of canary: what workers learn is gone with them, and a GPU
 * that has become slow would be the norm of those that follow. Loop thread only.
 */
#ifndef WORKERS_NORMS_H
#define WORKERS_NORMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "server/workers/norm.h"

struct norm_key {
    const char *gpu;    /* its UUID */
    const char *driver; /* its version: what it makes of a kernel, and of the clocks */
    const char *kind;   /* of the canary: another one takes another time */
};

/* Of a norm; all is borrowed. */
typedef void norms_cb(void *arg, const struct norm_key *key, const struct norm *n);

struct norms;
/* keep (may be NULL): n is to be kept for key. out: given, free with norms_free(). 0 or ERR_NOMEM. */
int norms_new(norms_cb *keep, void *arg, struct norms **out, struct error *err);
void norms_free(struct norms *all); /* NULL is fine */

/* Restores a stored norm; key and n are copied. 0 or ERR_NOMEM. */
int norms_add(struct norms *all, const struct norm_key *key, const struct norm *n, struct error *err);
/* View; NULL: there is none. */
const struct norm *norms_find(const struct norms *all, const struct norm_key *key);
/* norm_note() for key, which is copied; then it is kept where it has changed. */
enum norm_finding norms_note(struct norms *all, const struct norm_key *key, int64_t now_ms, int64_t ns,
                             bool is_well);
/* In the order in which they were first seen. */
void norms_each(const struct norms *all, norms_cb *cb, void *arg);
/* All of a GPU, by UUID, under every driver: cb is called with each that goes. It is learned anew. */
void norms_forget(struct norms *all, const char *gpu, norms_cb *cb, void *arg);

#endif
