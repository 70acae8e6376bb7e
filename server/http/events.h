/*
 * events.h - the last things that happened, kept for event streams: a ring
 * that is bounded in number and in bytes. Pure. Loop thread only.
 *
 * A position is the number of events before it. It is never sent: the distance
 * of two positions would show a submitter how many stages, which are hidden
 * from it, lie between two events that it sees. Clients get a random name.
 */
#ifndef HTTP_EVENTS_H
#define HTTP_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ids.h"

#define EVENT_NAME_SIZE 33                  /* 128 random bits in hex, and NUL */
#define EVENTS_BYTES_MAX (16 * 1024 * 1024) /* of all verdicts in the ring */

enum event_kind {
    EVENT_STATE,   /* a submission is queued, or in a stage */
    EVENT_VERDICT, /* a submission is done or cancelled */
    EVENT_GROUP,   /* all of a group are */
};

struct event {
    enum event_kind kind;
    char name[EVENT_NAME_SIZE];
    char submission[ID_SIZE]; /* "" for a group's */
    char group[ID_SIZE];      /* "": of none */
    char *client;             /* owned; the submission's client, or NULL */
    const char *stage;        /* of EVENT_STATE: static; NULL: it is queued */
    int attempts;             /* of EVENT_STATE */
    char *verdict;            /* owned; of EVENT_VERDICT, as it is stored, or NULL */
    bool is_detail;           /* not sent to callers who may only submit */
};

struct events;

/* most: events kept, 1 or more. NULL: no memory. */
struct events *events_new(size_t most);
void events_free(struct events *e); /* NULL is fine */

/* event's own strings are taken, and its name is made here. Older events are dropped where there is no room. */
void events_add(struct events *e, const struct event *event);

/* Positions of the oldest event kept, and behind the newest. */
uint64_t events_first(const struct events *e);
uint64_t events_end(const struct events *e);
/* The event at a position from events_first() to before events_end(). View until the next events_add(). */
const struct event *events_at(const struct events *e, uint64_t position);

/* A name for the position 0, before all events. View. */
const char *events_origin(const struct events *e);
/* The position behind the event of that name; false: it is not kept any more, or never was. */
bool events_find(const struct events *e, const char *name, uint64_t *position);

#endif
