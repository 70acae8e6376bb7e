#include "server/workers/turns.h"

#include <stddef.h>

#include <utlist.h>

/*
 * Theory of operation. Turns of a kind follow on each other, since changing over costs what the longest of those under
 * way still takes: while jobs go on from stage to stage beside each other, those that are to be alone gather. The first
 * of them waits for TURNS_PATIENCE_NS at most; then no other begins, and it is next once those under way are through.
 * Turns alone follow on each other until none is wanted, or for TURNS_ALONE_NS while others wait. Both bounds are
 * looked at when a turn would begin and end none, so nobody waits for a clock: when nobody holds a turn, one of the two
 * kinds may begin.
 *
 * A place is had for a whole job, and of places only as many are given as have room. Who found none is not overtaken
 * by others that want one for longer than TURNS_PATIENCE_NS; those who have theirs come to their end without another.
 */

void
turns_join(struct turns *all, struct turn *t)
{
    DL_APPEND(all->all, t);
}

void
turns_part(struct turns *all, struct turn *t)
{
    DL_DELETE(all->all, t);
}

void
turn_want(struct turn *t, enum turn_kind kind, enum turn_place asks, int64_t bytes, int64_t now_ns)
{
    t->wants = kind;
    t->since_ns = now_ns;
    if (t->has != PLACE_NONE)
        return;
    t->asks = asks;
    t->bytes = asks == PLACE_SHARE ? bytes : 0;
}

static bool
lacks_place(const struct turn *t)
{
    return t->asks != PLACE_NONE && t->has == PLACE_NONE;
}

/* There is room for it beside the places that are given. */
static bool
has_room(const struct turns *all, const struct turn *t, int64_t kept_bytes)
{
    const struct turn *other;
    int64_t used = kept_bytes;
    int places = 0;

    DL_FOREACH(all->all, other)
    {
        if (other == t || other->has == PLACE_NONE)
            continue;
        if (other->has == PLACE_WHOLE || t->asks == PLACE_WHOLE)
            return false;
        places++;
        used += other->bytes;
    }
    if (t->asks == PLACE_WHOLE || all->room_bytes < 0)
        return true;
    /* What is larger than the device is seen to be so there, with nobody beside it. */
    return used + t->bytes <= all->room_bytes || (places == 0 && kept_bytes == 0);
}

/* Somebody has wanted a place for longer, and has lost patience. */
static bool
would_overtake(const struct turns *all, const struct turn *t, int64_t now_ns)
{
    const struct turn *other;

    DL_FOREACH(all->all, other)
    if (other != t && other->wants != TURN_NONE && lacks_place(other) && other->since_ns < t->since_ns &&
        now_ns - other->since_ns >= TURNS_PATIENCE_NS)
        return true;
    return false;
}

static bool
may_have_place(const struct turns *all, const struct turn *t, int64_t kept_bytes, int64_t now_ns)
{
    return !lacks_place(t) || (has_room(all, t, kept_bytes) && !would_overtake(all, t, now_ns));
}

/* The one of this kind that has wanted to for longest, of those for whom there is a place. */
static struct turn *
oldest(const struct turns *all, enum turn_kind kind, int64_t kept_bytes, int64_t now_ns)
{
    struct turn *t, *found = NULL;

    DL_FOREACH(all->all, t)
    if (t->wants == kind && (!found || t->since_ns < found->since_ns) &&
        may_have_place(all, t, kept_bytes, now_ns))
        found = t;
    return found;
}

static int
holders(const struct turns *all, enum turn_kind kind)
{
    const struct turn *t;
    int n = 0;

    DL_FOREACH(all->all, t)
    n += t->holds == kind;
    return n;
}

/* Turns of this kind have followed on each other for long enough; other: who has waited for longest to change over. */
static bool
is_phase_over(const struct turns *all, const struct turn *other, int64_t now_ns)
{
    if (all->phase == TURN_ALONE)
        return now_ns - all->phase_ns >= TURNS_ALONE_NS;
    int64_t since_ns = other->since_ns > all->phase_ns ? other->since_ns : all->phase_ns;
    return now_ns - since_ns >= TURNS_PATIENCE_NS;
}

struct turn *
turns_next(const struct turns *all, int64_t kept_bytes, int64_t now_ns)
{
    struct turn *shared = oldest(all, TURN_SHARED, kept_bytes, now_ns);
    struct turn *alone = oldest(all, TURN_ALONE, kept_bytes, now_ns);

    if (holders(all, TURN_ALONE) > 0)
        return NULL;
    if (shared && alone) {
        bool is_over = is_phase_over(all, all->phase == TURN_ALONE ? shared : alone, now_ns);
        if ((all->phase == TURN_ALONE) == is_over)
            alone = NULL;
        else
            shared = NULL;
    }
    if (alone)
        return holders(all, TURN_SHARED) > 0 ? NULL : alone;
    return shared;
}

void
turn_begin(struct turns *all, struct turn *t, int64_t now_ns)
{
    if (all->phase != t->wants) {
        all->phase = t->wants;
        all->phase_ns = now_ns;
    }
    t->holds = t->wants;
    t->wants = TURN_NONE;
    if (lacks_place(t))
        t->has = t->asks;
}

void
turn_end(struct turn *t)
{
    t->wants = t->holds = TURN_NONE;
}

void
turn_leave(struct turn *t)
{
    turn_end(t);
    t->asks = t->has = PLACE_NONE;
    t->bytes = 0;
}

bool
turns_are_quiet(const struct turns *all)
{
    const struct turn *t;
    bool is_alone_wanted = false;

    DL_FOREACH(all->all, t)
    {
        if (t->holds == TURN_SHARED)
            return false;
        is_alone_wanted |= t->wants == TURN_ALONE || t->holds == TURN_ALONE;
    }
    return is_alone_wanted;
}
