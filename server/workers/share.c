#include "server/workers/private.h"

#include <stdlib.h>

#include "common/auto.h"
#include "common/clock.h"

/*
 * What the lanes of one device have in common: turns.h says who is next, and this file asks it whenever something has
 * changed, with the memory that is held for nobody's place. References that nobody uses are that, and so is what was
 * dropped and is not freed yet, since the referee that holds it may be at work.
 */

#define CONTEXT_BYTES (1000LL * 1000 * 1000) /* of a referee: its context, and torch's own cache */
#define ROOM_PART 5 /* of a GPU's memory one in so many is left for what nobody counts */

struct share {
    struct turns turns;
    struct lane *lanes;
    int n;
    bool is_pumping, is_due;
};

int
share_join(struct lane *l, const struct lane *first, struct error *err)
{
    struct share *s = first ? first->share : calloc(1, sizeof(*s));

    if (!s)
        return error_set(err, ERR_NOMEM, "no memory for device %s", l->device.name);
    s->turns.room_bytes = -1;
    l->share = s;
    LL_APPEND2(s->lanes, l, beside);
    turns_join(&s->turns, &l->turn);
    l->number = ++s->n;
    return 0;
}

void
share_part(struct lane *l)
{
    struct share *s = l->share;

    if (!s)
        return;
    LL_DELETE2(s->lanes, l, beside);
    turns_part(&s->turns, &l->turn);
    l->share = NULL;
    if (!s->lanes)
        free(s);
}

bool
share_is_shared(const struct lane *l)
{
    return l->share->n > 1;
}

struct lane *
share_first(const struct lane *l)
{
    return l->share->lanes;
}

/* --- memory --- */

/* Not part of a place: whoever waits for one may lose it again. */
static bool
is_kept(const struct lane *l, const struct runner *r)
{
    return r->use == USE_REFERENCE && (!l->job || l->job->reference != r || l->turn.has == PLACE_NONE);
}

static int64_t
kept_bytes(const struct share *s)
{
    const struct lane *l;
    const struct runner *r;
    int64_t sum = 0;

    LL_FOREACH2(s->lanes, l, beside)
    {
        sum += l->dropped_bytes;
        DL_FOREACH(l->runners, r)
        sum += is_kept(l, r) ? r->bytes : 0;
    }
    return sum;
}

/* The reference that nobody has used for longest goes. False: there is none. */
static bool
evict(const struct share *s)
{
    struct runner *r, *oldest = NULL;
    struct lane *l;

    LL_FOREACH2(s->lanes, l, beside)
    DL_FOREACH(l->runners, r)
    if (is_kept(l, r) && r->bytes > 0 && !(l->job && l->job->reference == r && l->job->is_asked) &&
        (!oldest || r->used_ns < oldest->used_ns))
        oldest = r;
    if (!oldest)
        return false;
    if (oldest->lane->job && oldest->lane->job->reference == oldest)
        oldest->lane->job->reference = NULL;
    oldest->lane->references.evicted++;
    runner_discard(oldest);
    return true;
}

/* What all places together may take: what is left beside contexts. -1: not known. */
static int64_t
room_bytes(const struct share *s)
{
    const struct lane *l = s->lanes;
    int64_t total = json_integer_value(json_object_get(lane_gpu(l), "memory_bytes"));

    if (total <= 0)
        return -1;
    total -= total / ROOM_PART + s->n * (CONTEXT_BYTES + l->config->pool * GPU_CHILD_BYTES);
    return total > 0 ? total : 0;
}

/* --- turns --- */

/* Starting, a referee measures the device, and what runs beside it suffers. */
static bool
is_any_starting(const struct share *s)
{
    const struct lane *l;

    LL_FOREACH2(s->lanes, l, beside)
    if (lane_is_gpu(l) && process_state(l->referee) == PROCESS_STARTING)
        return true;
    return false;
}

static struct turn *
next_turn(struct share *s, int64_t now_ns)
{
    s->turns.room_bytes = room_bytes(s);
    struct turn *t = turns_next(&s->turns, kept_bytes(s), now_ns);
    while (!t && turns_next(&s->turns, 0, now_ns) && evict(s))
        t = turns_next(&s->turns, kept_bytes(s), now_ns);
    return t && t->wants == TURN_ALONE && s->n > 1 && is_any_starting(s) ? NULL : t;
}

void
share_pump(struct lane *any)
{
    struct share *s = any->share;

    if (s->is_pumping) {
        s->is_due = true;
        return;
    }
    s->is_pumping = true;
    do {
        int64_t now_ns = clock_monotonic_ns();
        struct turn *t;
        s->is_due = false;
        while ((t = next_turn(s, now_ns))) {
            struct lane *l = (struct lane *)((char *)t - offsetof(struct lane, turn));
            if (l->job && s->n > 1)
                l->job->waited_ns += now_ns - t->since_ns;
            turn_begin(&s->turns, t, now_ns);
            lane_pump(l);
        }
    } while (s->is_due);
    s->is_pumping = false;
}

bool
share_turn(struct lane *l, enum turn_kind kind, enum turn_place place, int64_t bytes)
{
    if (l->turn.holds == kind)
        return true;
    if (l->turn.wants != kind) {
        turn_want(&l->turn, kind, place, bytes, clock_monotonic_ns());
        share_pump(l);
    }
    return false; /* whoever's turn it has become was pumped for it */
}

void
share_end_turn(struct lane *l)
{
    turn_end(&l->turn);
}

void
share_leave(struct lane *l)
{
    turn_leave(&l->turn);
}

/* --- what is beside a lane --- */

static bool
others_are_quiet(const struct lane *l)
{
    const struct lane *other;

    LL_FOREACH2(l->share->lanes, other, beside)
    if (other != l && !runners_are_quiet(other))
        return false;
    return true;
}

bool
share_is_quiet(const struct lane *l)
{
    return runners_are_quiet(l) && others_are_quiet(l);
}

bool
share_lets_time(const struct lane *l)
{
    return runners_can_stand_still(l) && others_are_quiet(l);
}

bool
share_keeps_quiet(const struct lane *l)
{
    const struct lane *other;

    if (!share_is_shared(l))
        return false;
    LL_FOREACH2(l->share->lanes, other, beside)
    if (other->job && other->job->is_alone && other->job->phase != PHASE_ACQUIRE)
        return true;
    return turns_are_quiet(&l->share->turns);
}

void
share_doubt(struct lane *l)
{
    struct lane *other;

    LL_FOREACH2(l->share->lanes, other, beside)
    {
        if (other == l)
            continue;
        if (other->job)
            other->job->is_violent = true;
        else if (other->state == LANE_IDLE)
            canary_send(other);
    }
}

void
share_tell_others(struct lane *l)
{
    struct lane *other;

    LL_FOREACH2(l->share->lanes, other, beside)
    if (other != l && other->turn.holds == TURN_ALONE &&
        (other->state == LANE_CHECKING || (other->job && other->job->phase == PHASE_QUIET)))
        lane_pump(other);
}

void
share_fill_pools(struct lane *l)
{
    struct lane *other;

    LL_FOREACH2(l->share->lanes, other, beside)
    if (other != l && (other->state == LANE_BUSY || other->state == LANE_IDLE))
        runners_fill_pool(other);
}

void
share_meet(struct lane *l)
{
    struct lane *other;

    LL_FOREACH2(l->share->lanes, other, beside)
    {
        if (other == l || !other->job || other->turn.has == PLACE_NONE)
            continue;
        l->job->is_beside = true;
        other->job->is_beside = true;
    }
}

int64_t
share_lost(const struct lane *l)
{
    const struct lane *other;
    int64_t sum = 0;

    LL_FOREACH2(l->share->lanes, other, beside)
    sum += other->lost + (other == l ? 0 : other->candidates_lost);
    return sum;
}

void
share_make_room(struct lane *l)
{
    struct lane *other;

    LL_FOREACH2(l->share->lanes, other, beside)
    runners_make_room(other);
}
