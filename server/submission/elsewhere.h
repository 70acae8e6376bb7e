/*
 * elsewhere.h - unfinished submissions that this daemon does not have: another node judges them, or they wait in the
 * store. A client that waits for one here is notified of its end, for which the store is polled a few times a second.
 * Loop thread only.
 */
#ifndef SUBMISSION_ELSEWHERE_H
#define SUBMISSION_ELSEWHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uthash.h>
#include <uv.h>

#include "common/ids.h"
#include "server/store/store.h"

struct client;
struct elsewhere;
struct funnel_wait;
struct group;

/* One that is followed: a submission, or what may be a group until the store was asked. */
struct elsewhere_entry {
    UT_hash_handle hh;
    struct elsewhere_entry *prev, *next; /* elsewhere.c's own */
    char id[ID_SIZE];
    char group_id[ID_SIZE]; /* "": of none, or not known */
    char *client;           /* NULL: of none, or not known */
    struct group *group;    /* that counts it among those that are not finished; NULL: none does */
    struct client *owner; /* it was accepted here and counts as its client's that waits; NULL: it does not */
    struct funnel_wait *waits; /* head of a list that is the caller's */
    bool is_known;             /* it is a submission, and the fields above have its owner */
    bool is_news;              /* its end is an event: it was seen unfinished, or a stream waits for it */
};

struct elsewhere_member {
    char id[ID_SIZE];
    char *client;
    bool is_finished;
};

struct elsewhere_news {
    enum {
        ELSEWHERE_ENDED, /* verdict is its document */
        ELSEWHERE_GROUP, /* it is a group, of these members */
        ELSEWHERE_GONE,  /* the store does not know it */
    } what;
    const char *verdict;
    const struct elsewhere_member *members;
    size_t n;
};
/* The entry is removed, and freed after the call. All is borrowed; the waits in `waits` have to be taken over. */
typedef void elsewhere_cb(void *arg, struct elsewhere_entry *e, const struct elsewhere_news *news);

/* store is borrowed. NULL: no memory. */
struct elsewhere *elsewhere_new(uv_loop_t *loop, struct store *store, elsewhere_cb *cb, void *arg);
/* Nothing is asked of the store any more: it has finished its writes. NULL is fine. */
void elsewhere_free(struct elsewhere *e);

/* Follow it from now on. client is copied. View; NULL: no memory. */
struct elsewhere_entry *elsewhere_add(struct elsewhere *e, const char *id, const char *group_id,
                                      const char *client);
/* The same of an id of which nothing else is known, unless it is followed already. */
struct elsewhere_entry *elsewhere_ask(struct elsewhere *e, const char *id);
void elsewhere_hurry(struct elsewhere *e); /* the next look is immediate, not at the next poll */
struct elsewhere_entry *elsewhere_find(struct elsewhere *e, const char *id); /* NULL: it is not followed */
/* It counts as accepted here from now on, until it is followed no more. */
void elsewhere_own(struct elsewhere *e, struct elsewhere_entry *entry, struct client *owner);
int64_t elsewhere_owned(const struct elsewhere *e); /* how many do */
/* It is removed without a notification: no client waits for it any more. */
void elsewhere_remove(struct elsewhere *e, struct elsewhere_entry *entry);

#endif
