#include "server/submission/registry.h"

#include <assert.h>
#include <stdlib.h>

#include <uthash.h>
#include <utlist.h>

#include "common/clock.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"

struct registry {
    struct submission *by_id;
    /* The clock does not go back, so that what is appended is the youngest: the oldest is known without looking at all. */
    struct submission *queued_oldest, *ready_oldest;
};

struct registry *
registry_new(void)
{
    return calloc(1, sizeof(struct registry));
}

void
registry_free(struct registry *r)
{
    free(r);
}

void
registry_add(struct registry *r, struct submission *s)
{
    HASH_ADD_STR(r->by_id, id, s);
}

void
registry_remove(struct registry *r, struct submission *s)
{
    registry_end_wait(r, s);
    HASH_DEL(r->by_id, s);
}

struct submission *
registry_find(const struct registry *r, const char *id)
{
    struct submission *found;

    HASH_FIND_STR(r->by_id, id, found);
    return found;
}

struct submission *
registry_first(const struct registry *r)
{
    return r->by_id;
}

struct submission *
registry_after(const struct submission *s)
{
    return s->hh.next;
}

static struct submission **
waiting_list(struct registry *r, const struct submission *s)
{
    return s->state == STATE_QUEUED ? &r->queued_oldest : &r->ready_oldest;
}

void
registry_begin_wait(struct registry *r, struct submission *s)
{
    assert(s->state == STATE_QUEUED || s->state == STATE_READY);
    registry_end_wait(r, s);
    s->queued_ns = clock_monotonic_ns();
    DL_APPEND2(*waiting_list(r, s), s, older, newer);
    s->is_waiting = true;
}

void
registry_end_wait(struct registry *r, struct submission *s)
{
    if (s->is_waiting)
        DL_DELETE2(*waiting_list(r, s), s, older, newer);
    s->is_waiting = false;
}

static double
waited_s(const struct submission *s)
{
    return s ? (double)(clock_monotonic_ns() - s->queued_ns) / 1e9 : -1;
}

double
registry_oldest_queued_s(const struct registry *r)
{
    return waited_s(r->queued_oldest);
}

double
registry_oldest_ready_s(const struct registry *r)
{
    return waited_s(r->ready_oldest);
}
