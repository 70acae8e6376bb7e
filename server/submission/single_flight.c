#include "server/submission/single_flight.h"

#include <stdio.h>
#include <stdlib.h>

#include <utlist.h>

struct single_flight {
    struct flight_member *primaries; /* by key */
    int64_t following;
};

struct single_flight *
flight_new(void)
{
    return calloc(1, sizeof(struct single_flight));
}

struct flight_member *
flight_find(struct single_flight *flight, const char *key)
{
    struct flight_member *found;

    HASH_FIND_STR(flight->primaries, key, found);
    return found;
}

void
flight_lead(struct single_flight *flight, struct flight_member *m, const char *key)
{
    snprintf(m->key, sizeof(m->key), "%s", key);
    HASH_ADD_STR(flight->primaries, key, m);
    m->is_primary = true;
}

void
flight_follow(struct single_flight *flight, struct flight_member *m, struct flight_member *primary)
{
    m->primary = primary;
    DL_APPEND(primary->followers, m);
    flight->following++;
}

bool
flight_is_following(const struct flight_member *m)
{
    return m->primary != NULL;
}

void
flight_leave(struct single_flight *flight, struct flight_member *m)
{
    DL_DELETE(m->primary->followers, m);
    m->primary = NULL;
    flight->following--;
}

void
flight_land(struct single_flight *flight, struct flight_member *m)
{
    if (!m->is_primary)
        return;
    m->is_primary = false;
    HASH_DEL(flight->primaries, m);
}

struct flight_member *
flight_take_follower(struct single_flight *flight, struct flight_member *m)
{
    struct flight_member *first = m->followers;

    if (first)
        flight_leave(flight, first);
    return first;
}

int64_t
flight_following(const struct single_flight *flight)
{
    return flight->following;
}
