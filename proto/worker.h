/* worker.h - constants and shared-memory layout of the worker protocol (proto/worker.md). */
#ifndef PROTO_WORKER_H
#define PROTO_WORKER_H

#include <stdint.h>

#define WORKER_MESSAGE_MAX (60 * 1024)
#define WORKER_FDS_MAX 8
#define WORKER_DETAIL_MAX (1024 * 1024)
#define WORKER_ERROR_TEXT_MAX (8 * 1024)

#define DOORBELL_BYTES (128 * 1024)
#define DOORBELL_REPLY_MAX (64 * 1024)

enum doorbell_status {
    DOORBELL_OK = 0,    /* the call returned */
    DOORBELL_RAISED = 1 /* it raised: the reply has the error */
};

/*
 * The page between the referee and one child. Each side writes only its own
 * cache lines; the child can write all of it, and is believed in nothing but
 * "answered", which starts the referee's own check.
 */
struct doorbell {
    /* written by the referee */
    uint32_t bell;  /* futex word: bells rung so far */
    uint32_t set;   /* which set of inputs */
    uint32_t calls; /* calls to make for this bell, 1 or more: set, set + 1, ... modulo sets */
    uint32_t sets;  /* number of sets */
    uint8_t pad0[64 - 16];
    /* written by the child */
    uint32_t answer; /* futex word: the bell that was answered last */
    uint32_t status; /* enum doorbell_status */
    uint32_t reply_bytes;
    uint32_t reply_generation; /* changes whenever the reply's bytes change */
    uint64_t events_ns;        /* the child's own CUDA-event time, shown and never used; 0: none */
    uint64_t host_ns;          /* the child's own time in its calls, before it synchronised; the same */
    uint8_t pad1[64 - 32];
    uint8_t reply[DOORBELL_REPLY_MAX];
};

#endif
