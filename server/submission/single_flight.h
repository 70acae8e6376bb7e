/*
 * single_flight.h - identical work is done once: the first that asks for a key is its primary, and those that ask while
 * it is in flight follow it. Pure: it knows nothing of what the work is.
 */
#ifndef SUBMISSION_SINGLE_FLIGHT_H
#define SUBMISSION_SINGLE_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "common/hash.h"

/* Part of what asks. All zero at first; the fields are single_flight.c's own. */
struct flight_member {
    UT_hash_handle hh;
    char key[HASH_TEXT_SIZE];
    bool is_primary;
    struct flight_member *primary, *followers, *prev, *next;
};

struct single_flight;

struct single_flight *flight_new(void); /* given: free(), once no primary is left; NULL: no memory */
/* The primary of this key; NULL: there is none yet. */
struct flight_member *flight_find(struct single_flight *flight, const char *key);
/* The key has no primary, and m becomes it. */
void flight_lead(struct single_flight *flight, struct flight_member *m, const char *key);
void flight_follow(struct single_flight *flight, struct flight_member *m, struct flight_member *primary);
bool flight_is_following(const struct flight_member *m);
/* m is no longer a follower. */
void flight_leave(struct single_flight *flight, struct flight_member *m);
/* m is in flight no more: the next that asks for its key leads. Its followers stay until they are taken. */
void flight_land(struct single_flight *flight, struct flight_member *m);
/* Takes the follower that came first away from m; NULL: it has none. */
struct flight_member *flight_take_follower(struct single_flight *flight, struct flight_member *m);
int64_t flight_following(const struct single_flight *flight); /* members that follow */

#endif
