#include "server/http/events.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

struct events {
    struct event *ring; /* event number n stands at n % most */
    size_t most;
    uint64_t first, end;
    size_t bytes; /* of the verdicts */
    char origin[EVENT_NAME_SIZE];
};

static void
make_name(char out[EVENT_NAME_SIZE])
{
    unsigned char bytes[(EVENT_NAME_SIZE - 1) / 2];

    randombytes_buf(bytes, sizeof(bytes));
    sodium_bin2hex(out, EVENT_NAME_SIZE, bytes, sizeof(bytes));
}

static struct event *
slot(const struct events *e, uint64_t position)
{
    return &e->ring[position % e->most];
}

static void
drop_first(struct events *e)
{
    struct event *event = slot(e, e->first);

    e->bytes -= event->verdict ? strlen(event->verdict) : 0;
    free(event->client);
    free(event->verdict);
    e->first++;
}

struct events *
events_new(size_t most)
{
    struct events *e = sodium_init() < 0 ? NULL : calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    e->most = most;
    e->ring = calloc(most, sizeof(*e->ring));
    if (!e->ring) {
        free(e);
        return NULL;
    }
    make_name(e->origin);
    return e;
}

void
events_free(struct events *e)
{
    if (!e)
        return;
    while (e->first < e->end)
        drop_first(e);
    free(e->ring);
    free(e);
}

void
events_add(struct events *e, const struct event *event)
{
    if (e->end - e->first == e->most)
        drop_first(e);
    *slot(e, e->end) = *event;
    make_name(slot(e, e->end)->name);
    e->end++;
    e->bytes += event->verdict ? strlen(event->verdict) : 0;
    /* The newest stays, however large. */
    while (e->bytes > EVENTS_BYTES_MAX && e->end - e->first > 1)
        drop_first(e);
}

uint64_t
events_first(const struct events *e)
{
    return e->first;
}

uint64_t
events_end(const struct events *e)
{
    return e->end;
}

const struct event *
events_at(const struct events *e, uint64_t position)
{
    return slot(e, position);
}

const char *
events_origin(const struct events *e)
{
    return e->origin;
}

bool
events_find(const struct events *e, const char *name, uint64_t *position)
{
    for (uint64_t at = e->end; at > e->first; at--) {
        if (strcmp(slot(e, at - 1)->name, name) == 0) {
            *position = at;
            return true;
        }
    }
    *position = 0;
    return e->first == 0 && strcmp(e->origin, name) == 0;
}
