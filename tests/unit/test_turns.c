/* test_turns.c - who may use a device that several jobs share, under a simulated clock and over many seeds. */
#include "server/workers/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000000LL
#define START (1000 * SECOND) /* of the clock: not at nought */
#define ROOM 100

static struct turns
device(struct turn *turns, size_t n)
{
    struct turns all = { .room_bytes = ROOM };

    memset(turns, 0, n * sizeof(*turns));
    for (size_t i = 0; i < n; i++)
        turns_join(&all, &turns[i]);
    return all;
}

/* It is next, and begins. */
static void
begins(struct turns *all, struct turn *t, int64_t now_ns)
{
    assert_ptr_equal(turns_next(all, 0, now_ns), t);
    turn_begin(all, t, now_ns);
}

static void
stages_go_side_by_side_and_one_alone(void **state)
{
    struct turn t[3];
    struct turns all = device(t, 3);

    (void)state;
    for (size_t i = 0; i < 2; i++)
        turn_want(&t[i], TURN_SHARED, PLACE_SHARE, 10, START);
    begins(&all, &t[0], START);
    begins(&all, &t[1], START);
    assert_false(turns_are_quiet(&all));
    turn_end(&t[0]);
    turn_want(&t[0], TURN_ALONE, PLACE_SHARE, 10, START + 1);
    assert_null(turns_next(&all, 0, START + 1));
    turn_end(&t[1]);
    assert_true(turns_are_quiet(&all));
    begins(&all, &t[0], START + 2);
    turn_want(&t[1], TURN_SHARED, PLACE_SHARE, 10, START + 2);
    turn_want(&t[2], TURN_SHARED, PLACE_SHARE, 10, START + 2);
    assert_null(turns_next(&all, 0, START + 60 * SECOND));
    turn_leave(&t[0]);
    begins(&all, &t[1], START + 60 * SECOND);
    begins(&all, &t[2], START + 60 * SECOND);
}

static void
those_that_are_to_be_alone_gather(void **state)
{
    struct turn t[4];
    struct turns all = device(t, 4);
    int64_t now_ns = START;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        turn_want(&t[i], TURN_SHARED, PLACE_SHARE, 1, now_ns);
        begins(&all, &t[i], now_ns);
    }
    /* The first two want to be alone, and the others still go on. */
    turn_end(&t[0]);
    turn_want(&t[0], TURN_ALONE, PLACE_SHARE, 1, now_ns);
    turn_end(&t[1]);
    turn_want(&t[1], TURN_ALONE, PLACE_SHARE, 1, now_ns + 1);
    turn_end(&t[2]);
    turn_want(&t[2], TURN_SHARED, PLACE_SHARE, 1, now_ns + 2);
    begins(&all, &t[2], now_ns + 2);
    /* But not for ever: then whoever asks waits. */
    now_ns += TURNS_PATIENCE_NS;
    turn_end(&t[2]);
    turn_want(&t[2], TURN_SHARED, PLACE_SHARE, 1, now_ns);
    assert_null(turns_next(&all, 0, now_ns));
    turn_end(&t[3]);
    /* One after the other, by how long they have waited, before the one that goes on. */
    begins(&all, &t[0], now_ns);
    assert_null(turns_next(&all, 0, now_ns));
    turn_leave(&t[0]);
    begins(&all, &t[1], now_ns + SECOND);
    turn_leave(&t[1]);
    begins(&all, &t[2], now_ns + 2 * SECOND);
}

static void
turns_alone_give_way_in_the_end(void **state)
{
    struct turn t[3];
    struct turns all = device(t, 3);

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        turn_want(&t[i], TURN_SHARED, PLACE_SHARE, 1, START);
        begins(&all, &t[i], START);
        turn_end(&t[i]);
    }
    turn_want(&t[0], TURN_ALONE, PLACE_NONE, 0, START);
    begins(&all, &t[0], START);
    turn_want(&t[2], TURN_SHARED, PLACE_NONE, 0, START);
    turn_end(&t[0]);
    turn_want(&t[1], TURN_ALONE, PLACE_NONE, 0, START + TURNS_ALONE_NS - 1);
    begins(&all, &t[1], START + TURNS_ALONE_NS - 1);
    turn_end(&t[1]);
    turn_want(&t[0], TURN_ALONE, PLACE_NONE, 0, START + TURNS_ALONE_NS);
    begins(&all, &t[2], START + TURNS_ALONE_NS);
}

static void
places_are_given_while_there_is_room(void **state)
{
    struct turn t[4];
    struct turns all = device(t, 4);

    (void)state;
    turn_want(&t[0], TURN_SHARED, PLACE_SHARE, 60, START);
    assert_null(turns_next(&all, 50, START)); /* what is kept has to go first */
    begins(&all, &t[0], START);
    turn_want(&t[1], TURN_SHARED, PLACE_SHARE, 50, START + 1);
    turn_want(&t[2], TURN_SHARED, PLACE_SHARE, 40, START + 2);
    begins(&all, &t[2], START + 2); /* it overtakes, for a while */
    turn_leave(&t[2]);
    turn_want(&t[2], TURN_SHARED, PLACE_SHARE, 40, START + 1 + TURNS_PATIENCE_NS);
    assert_null(turns_next(&all, 0, START + 1 + TURNS_PATIENCE_NS));
    turn_leave(&t[0]);
    begins(&all, &t[1], START + 2 * SECOND);
    begins(&all, &t[2], START + 2 * SECOND);
    /* One whose needs nobody knows has nobody beside it; one that is too large is told so by the device. */
    turn_want(&t[3], TURN_SHARED, PLACE_WHOLE, 7, START + 3 * SECOND);
    turn_leave(&t[1]);
    assert_null(turns_next(&all, 0, START + 3 * SECOND));
    turn_leave(&t[2]);
    begins(&all, &t[3], START + 4 * SECOND);
    turn_want(&t[0], TURN_SHARED, PLACE_SHARE, 2 * ROOM, START + 4 * SECOND);
    assert_null(turns_next(&all, 0, START + 4 * SECOND));
    turn_leave(&t[3]);
    assert_null(turns_next(&all, 1, START + 4 * SECOND));
    begins(&all, &t[0], START + 4 * SECOND);
}

/* --- many seeds --- */

#define LANES 6
#define SHARED_MOST (SECOND / 2)
#define ALONE_MOST (3 * SECOND)
#define EVENTS 3000
#define SEEDS 300
/* The longest that anybody may wait with a place, by what the rules say. */
#define SHARED_WAIT (TURNS_ALONE_NS + 2 * ALONE_MOST + SHARED_MOST)
#define ALONE_WAIT(n) (((n) + 1) * (ALONE_MOST + TURNS_PATIENCE_NS + SHARED_MOST))
#define JOB_MOST(n) (3 * (SHARED_WAIT + SHARED_MOST) + ALONE_WAIT(n) + ALONE_MOST)

struct lane {
    struct turn turn;
    enum { RESTS, WORKS, SINGS, QUARANTINED } what;
    int stages_left; /* of the job, this one included; the last may be one alone */
    bool is_timed;
    int64_t kept; /* of a reference, once a job is over */
    int64_t ends_ns;
    int jobs;
};

struct world {
    struct turns all;
    struct lane lanes[LANES];
    int n;
    unsigned seed;
    int64_t now_ns;
    int alone, changes;
    enum turn_kind last;
};

static int
draw(struct world *w, int below)
{
    return rand_r(&w->seed) % below;
}

static int64_t
kept_bytes(const struct world *w)
{
    int64_t sum = 0;

    for (int i = 0; i < w->n; i++)
        sum += w->lanes[i].kept;
    return sum;
}

static void
look(const struct world *w)
{
    int shared = 0, alone = 0, places = 0, whole = 0;
    int64_t bytes = 0;

    for (int i = 0; i < w->n; i++) {
        const struct turn *t = &w->lanes[i].turn;
        shared += t->holds == TURN_SHARED;
        alone += t->holds == TURN_ALONE;
        places += t->has != PLACE_NONE;
        whole += t->has == PLACE_WHOLE;
        bytes += t->bytes * (t->has == PLACE_SHARE);
        assert_true(t->holds == TURN_NONE || t->wants == TURN_NONE);
        if (w->lanes[i].what == QUARANTINED)
            assert_true(t->holds == TURN_NONE && t->has == PLACE_NONE && t->wants == TURN_NONE);
    }
    assert_true(alone == 0 || (alone == 1 && shared == 0));
    assert_true(bytes + kept_bytes(w) <= ROOM || places <= 1);
    assert_true(whole == 0 || places == 1);
}

static void
wait_was_bounded(const struct world *w, const struct turn *t)
{
    int64_t waited_ns = w->now_ns - t->since_ns;

    if (t->has != PLACE_NONE || t->asks == PLACE_NONE)
        assert_true(waited_ns <= (t->wants == TURN_ALONE ? ALONE_WAIT(w->n) : SHARED_WAIT));
    else
        assert_true(waited_ns <= w->n * JOB_MOST(w->n));
}

/* Somebody's reference goes. False: none is left. */
static bool
evict(struct world *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->lanes[i].kept > 0) {
            w->lanes[i].kept = 0;
            return true;
        }
    return false;
}

static void
pump(struct world *w)
{
    for (;;) {
        struct turn *t = turns_next(&w->all, kept_bytes(w), w->now_ns);
        if (!t && turns_next(&w->all, 0, w->now_ns)) {
            assert_true(evict(w));
            continue;
        }
        if (!t)
            break;
        wait_was_bounded(w, t);
        struct lane *l = (struct lane *)t; /* its first member */
        w->alone += t->wants == TURN_ALONE;
        w->changes += t->wants == TURN_ALONE && w->last != TURN_ALONE;
        w->last = t->wants;
        int64_t most_ns = t->wants == TURN_ALONE ? ALONE_MOST : SHARED_MOST;
        l->ends_ns = w->now_ns + 1 + draw(w, (int)(most_ns / 1000)) * 1000LL;
        turn_begin(&w->all, t, w->now_ns);
        look(w);
    }
    bool is_held = false, is_wanted = false;
    for (int i = 0; i < w->n; i++) {
        is_held |= w->lanes[i].turn.holds != TURN_NONE;
        is_wanted |= w->lanes[i].turn.wants != TURN_NONE;
    }
    assert_true(is_held || !is_wanted); /* nobody waits for nothing */
}

static void
want_stage(struct world *w, struct lane *l)
{
    bool is_alone = l->is_timed && l->stages_left == 1;

    turn_want(&l->turn, is_alone ? TURN_ALONE : TURN_SHARED, PLACE_NONE, 0, w->now_ns);
}

static void
begin_job(struct world *w, struct lane *l)
{
    l->what = WORKS;
    l->kept = 0; /* it is the one that the job needs, or goes */
    l->stages_left = 1 + draw(w, 4);
    l->is_timed = draw(w, 2) && l->stages_left > 1;
    bool is_whole = draw(w, 20) == 0;
    int64_t bytes = draw(w, 10) == 0 ? draw(w, 3 * ROOM) : draw(w, ROOM / 2);
    turn_want(&l->turn, TURN_SHARED, is_whole ? PLACE_WHOLE : PLACE_SHARE, bytes, w->now_ns);
}

static void
end_job(struct lane *l)
{
    int64_t bytes = l->turn.bytes;
    bool had_place = l->turn.has == PLACE_SHARE;

    turn_leave(&l->turn);
    l->kept = had_place && bytes <= ROOM ? bytes / 2 : 0; /* its reference stays */
    l->what = RESTS;
    l->jobs++;
}

/* The lane's stage is through, or it did nothing. */
static void
step(struct world *w, struct lane *l)
{
    if (l->what == RESTS) {
        begin_job(w, l);
    } else if (l->what == SINGS) {
        turn_leave(&l->turn);
        l->what = draw(w, 50) == 0 ? QUARANTINED : RESTS;
    } else if (--l->stages_left > 0 && draw(w, 10) > 0) {
        turn_end(&l->turn);
        want_stage(w, l);
    } else {
        end_job(l);
        if (draw(w, 8) == 0) {
            l->what = SINGS;
            turn_want(&l->turn, TURN_ALONE, draw(w, 2) ? PLACE_NONE : PLACE_WHOLE, 0, w->now_ns);
        }
    }
}

/* The next stage to end, or a lane that rests: what happens then. Now and then somebody is cancelled or lost. */
static bool
happen(struct world *w)
{
    struct lane *next = NULL;

    for (int i = 0; i < w->n; i++) {
        struct lane *l = &w->lanes[i];
        int64_t at_ns = l->what == RESTS ? w->now_ns : l->ends_ns;
        bool is_due = l->what == RESTS || l->turn.holds != TURN_NONE;
        if (is_due && (!next || at_ns < (next->what == RESTS ? w->now_ns : next->ends_ns)))
            next = l;
    }
    if (!next)
        return false;
    if (next->what != RESTS && next->ends_ns > w->now_ns)
        w->now_ns = next->ends_ns;
    step(w, next);
    struct lane *other = &w->lanes[draw(w, w->n)];
    if (draw(w, 40) == 0 && other->what == WORKS)
        end_job(other); /* whether it waits or works */
    look(w);
    pump(w);
    return true;
}

static void
whatever_happens(void **state)
{
    int64_t alone = 0, changes = 0;

    (void)state;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct world w = { .all = { .room_bytes = ROOM }, .seed = seed, .now_ns = START };
        w.n = 1 + (int)(seed % LANES);
        for (int i = 0; i < w.n; i++)
            turns_join(&w.all, &w.lanes[i].turn);
        for (int i = 0; i < EVENTS && happen(&w); i++)
            ;
        for (int i = 0; i < w.n; i++)
            if (w.lanes[i].what != QUARANTINED)
                assert_true(w.lanes[i].jobs > EVENTS / (40 * w.n)); /* nobody was left behind */
        for (int i = 0; i < w.n; i++)
            turns_part(&w.all, &w.lanes[i].turn);
        assert_null(w.all.all);
        if (w.n == LANES) {
            alone += w.alone;
            changes += w.changes;
        }
    }
    assert_true(alone > 1000);
    assert_true(alone * 10 > changes * 15); /* one and a half of them, at least, for each change */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_go_side_by_side_and_one_alone),
        cmocka_unit_test(those_that_are_to_be_alone_gather),
        cmocka_unit_test(turns_alone_give_way_in_the_end),
        cmocka_unit_test(places_are_given_while_there_is_room),
        cmocka_unit_test(whatever_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
