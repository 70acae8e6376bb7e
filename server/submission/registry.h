/*
 * registry.h - the unfinished submissions, by id, and which of them has waited longest. An id that is not in it is
 * finished, unknown or another daemon's: the store has the answer. Loop thread only.
 */
#ifndef SUBMISSION_REGISTRY_H
#define SUBMISSION_REGISTRY_H

#include <stdint.h>

#include <uthash.h>

#include "common/ids.h"

/* Part of a submission. All zero at first, but for its id. */
struct registry_entry {
    UT_hash_handle hh;
    char id[ID_SIZE];
    int64_t since_ns; /* when it began to wait */
    /* The fields below are registry.c's own. */
    enum registry_wait { REGISTRY_NOT, REGISTRY_FOR_SLOT, REGISTRY_FOR_DEVICE } waits;
    struct registry_entry *older, *newer; /* among those that wait for the same */
};

struct registry;

struct registry *registry_new(void); /* given: free(), once it is empty; NULL: no memory */
void registry_add(struct registry *r, struct registry_entry *e);
void registry_remove(struct registry *r, struct registry_entry *e);
struct registry_entry *registry_find(const struct registry *r, const char *id); /* NULL: it is not there */
/* In the order of their coming; NULL: no more. The one that was given last may be removed, if the next is known. */
struct registry_entry *registry_first(const struct registry *r);
struct registry_entry *registry_after(const struct registry_entry *e);

/* It waits from now on, for a slot or for a device, until registry_end_wait(). */
void registry_begin_wait(struct registry *r, struct registry_entry *e, enum registry_wait waits);
void registry_end_wait(struct registry *r,
                       struct registry_entry *e); /* nothing happens where it does not wait */
/* Seconds that the oldest has waited; below 0: none waits. */
double registry_oldest_s(const struct registry *r, enum registry_wait waits);

#endif
