/*
 * turns.h - who may use a device next, where several jobs share one. A job has a place on the device from its first
 * turn to its end, and within it a turn for each stage: beside others, or alone. Pure: it knows no clock and no lane.
 */
#ifndef WORKERS_TURNS_H
#define WORKERS_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#define TURNS_PATIENCE_NS 1000000000LL /* so long others still begin while somebody waits to be alone */
#define TURNS_ALONE_NS 5000000000LL    /* so long turns alone follow on each other while others wait */

enum turn_kind { TURN_NONE, TURN_SHARED, TURN_ALONE };

/* What a turn takes of the device beside time. */
enum turn_place {
    PLACE_NONE,  /* it is no job's */
    PLACE_SHARE, /* `bytes` of the memory */
    PLACE_WHOLE  /* nobody knows how much: nobody else has a place meanwhile */
};

/* One of those who share. All zero at first. */
struct turn {
    struct turn *prev, *next;
    enum turn_kind wants, holds;
    enum turn_place asks, has;
    int64_t bytes;    /* of the place that it asks for or has */
    int64_t since_ns; /* it wants */
};

/* One device. All zero at first, but for room_bytes. */
struct turns {
    struct turn *all;
    int64_t room_bytes;   /* for all places together; negative: not known, and not bounded */
    enum turn_kind phase; /* which kind began last */
    int64_t phase_ns;     /* since when turns of that kind do */
};

void turns_join(struct turns *all, struct turn *t);
void turns_part(struct turns *all, struct turn *t); /* with all that it had */

/* t, which holds no turn, wants one. asks, bytes: its place, unless it has one. */
void turn_want(struct turn *t, enum turn_kind kind, enum turn_place asks, int64_t bytes, int64_t now_ns);
/*
 * Who is next; NULL: nobody can begin now. kept_bytes: of the memory that is held for no place, and can be freed.
 * Whenever nobody holds a turn, nobody has a place, kept_bytes is 0 and somebody wants one, there is one.
 */
struct turn *turns_next(const struct turns *all, int64_t kept_bytes, int64_t now_ns);
void turn_begin(struct turns *all, struct turn *t, int64_t now_ns); /* as turns_next() said */
void turn_end(struct turn *t);   /* the stage is over, or is not wanted any more; the place is kept */
void turn_leave(struct turn *t); /* the job is over */

/* Whether t waits to be alone or is, and nobody else has a turn: nothing that would disturb it is to begin. */
bool turns_are_quiet(const struct turns *all);

#endif
