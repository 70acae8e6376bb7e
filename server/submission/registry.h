/*
 * registry.h - the submissions that are not finished, by id, and which of them has waited longest. Whoever is not in it is
 * finished or unknown: the store says which. Loop thread only.
 */
#ifndef SUBMISSION_REGISTRY_H
#define SUBMISSION_REGISTRY_H

struct registry;
struct submission;

struct registry *registry_new(void);    /* NULL: no memory */
void registry_free(struct registry *r); /* it is empty; NULL is fine */

void registry_add(struct registry *r, struct submission *s);
void registry_remove(struct registry *r, struct submission *s);
struct submission *registry_find(const struct registry *r, const char *id); /* NULL: it is not there */
/* In the order of their coming; NULL: no more. The one that was given last may be removed meanwhile, if the next is known. */
struct submission *registry_first(const struct registry *r);
struct submission *registry_after(const struct submission *s);

/* It waits from now on, for a slot where it is queued, for a device where it is ready, until registry_end_wait(). */
void registry_begin_wait(struct registry *r, struct submission *s);
void registry_end_wait(struct registry *r, struct submission *s); /* nothing happens where it does not wait */

/* Seconds that the longest has waited for a slot, and for a device; below 0: nobody waits. */
double registry_oldest_queued_s(const struct registry *r);
double registry_oldest_ready_s(const struct registry *r);

#endif
