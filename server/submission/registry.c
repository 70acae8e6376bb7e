#include "server/submission/registry.h"

#include <stdlib.h>

#include <utlist.h>

#include "common/clock.h"

struct registry {
    struct registry_entry *by_id;
    /* The clock does not go back, so an appended entry is the youngest: the oldest is found without a scan. */
    struct registry_entry *oldest[REGISTRY_FOR_DEVICE + 1];
};

struct registry *
registry_new(void)
{
    return calloc(1, sizeof(struct registry));
}

void
registry_add(struct registry *r, struct registry_entry *e)
{
    HASH_ADD_STR(r->by_id, id, e);
}

void
registry_remove(struct registry *r, struct registry_entry *e)
{
    registry_end_wait(r, e);
    HASH_DEL(r->by_id, e);
}

struct registry_entry *
registry_find(const struct registry *r, const char *id)
{
    struct registry_entry *found;

    HASH_FIND_STR(r->by_id, id, found);
    return found;
}

struct registry_entry *
registry_first(const struct registry *r)
{
    return r->by_id;
}

struct registry_entry *
registry_after(const struct registry_entry *e)
{
    return e->hh.next;
}

void
registry_begin_wait(struct registry *r, struct registry_entry *e, enum registry_wait waits)
{
    registry_end_wait(r, e);
    e->since_ns = clock_monotonic_ns();
    e->waits = waits;
    DL_APPEND2(r->oldest[waits], e, older, newer);
}

void
registry_end_wait(struct registry *r, struct registry_entry *e)
{
    if (e->waits != REGISTRY_NOT)
        DL_DELETE2(r->oldest[e->waits], e, older, newer);
    e->waits = REGISTRY_NOT;
}

double
registry_oldest_s(const struct registry *r, enum registry_wait waits)
{
    const struct registry_entry *e = r->oldest[waits];

    return e ? (double)(clock_monotonic_ns() - e->since_ns) / 1e9 : -1;
}
