/* pack.h - how sources, references and captured output are stored: compressed (zstd). Pure, but for the packer's scratch. */
#ifndef STORE_PACK_H
#define STORE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* The state of packing: used by one thread. */
struct packer {
    void *context; /* ZSTD_CCtx */
    char *bytes;   /* scratch, grown as needed */
    size_t room;
};

/* 0 or ERR_NOMEM; release it in either case. */
int packer_init(struct packer *p, struct error *err);
void packer_release(struct packer *p);

/* out: view, until packer_trim(). 0, ERR_NOMEM or ERR_STORE. */
int packer_pack(struct packer *p, const void *bytes, size_t size, const char **out, size_t *out_size,
                struct error *err);
/* Give back a scratch that has grown large. */
void packer_trim(struct packer *p);

/*
 * The bytes that were packed.
 *   packed  NULL: damaged
 *   told    their recorded size in bytes
 *   out     given: free(); a NUL stands after the bytes
 * 0, ERR_NOMEM or ERR_STORE (damaged).
 */
int unpack(const void *packed, size_t packed_size, int64_t told, char **out, size_t *size, struct error *err);

#endif
