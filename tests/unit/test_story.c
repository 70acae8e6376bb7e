/* test_story.c - what follows on what a stage reports: every state, every report, and all that else matters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/submission/story.h"

static const char *
story_step_name(enum story_step step)
{
    static const char *const names[] = { "illegal", "run",    "next",     "next fresh", "ready", "leave",
                                         "park",    "finish", "conclude", "stop",       "lose" };
    _Static_assert(sizeof(names) / sizeof(*names) == STORY_NSTEPS, "name every step");
    return names[step];
}

/* What is expected in a state; the facts that are not named make no difference to it. */
struct row {
    enum state state;
    enum stage_event event;
    enum { ANY, YES, NO } goes_on, will_park, needs_fresh, is_stopped, is_finishing, is_parking;
    enum story_step step;
};

static const struct row rows[] = {
    { STATE_AST, STAGE_DECIDED, .goes_on = YES, .step = STORY_NEXT },
    { STATE_AST, STAGE_DECIDED, .goes_on = NO, .step = STORY_FINISH },
    { STATE_AST, STAGE_LOST, .is_stopped = NO, .step = STORY_LOSE },
    { STATE_AST, STAGE_LOST, .is_stopped = YES, .step = STORY_STOP },
    { STATE_COMPILE, STAGE_DECIDED, .goes_on = YES, .step = STORY_READY },
    { STATE_COMPILE, STAGE_DECIDED, .goes_on = NO, .step = STORY_FINISH },
    { STATE_COMPILE, STAGE_LOST, .is_stopped = NO, .step = STORY_LOSE },
    { STATE_COMPILE, STAGE_LOST, .is_stopped = YES, .step = STORY_STOP },

    { STATE_TINY, STAGE_OPENED, .step = STORY_RUN },
    { STATE_TINY, STAGE_DECIDED, .goes_on = YES, .needs_fresh = NO, .step = STORY_NEXT },
    { STATE_TINY, STAGE_DECIDED, .goes_on = YES, .needs_fresh = YES, .step = STORY_NEXT_FRESH },
    { STATE_TINY, STAGE_DECIDED, .goes_on = NO, .step = STORY_FINISH },
    { STATE_FULL, STAGE_OPENED, .step = STORY_RUN },
    { STATE_FULL, STAGE_DECIDED, .goes_on = YES, .needs_fresh = YES, .step = STORY_NEXT_FRESH },
    { STATE_FULL, STAGE_DECIDED, .goes_on = YES, .needs_fresh = NO, .will_park = NO, .step = STORY_NEXT },
    { STATE_FULL, STAGE_DECIDED, .goes_on = YES, .needs_fresh = NO, .will_park = YES, .step = STORY_LEAVE },
    { STATE_FULL, STAGE_DECIDED, .goes_on = NO, .step = STORY_FINISH },
    { STATE_TIMING, STAGE_OPENED, .step = STORY_RUN },
    { STATE_TIMING, STAGE_DECIDED, .goes_on = NO, .step = STORY_FINISH },

    /* The device has let go: a clear verdict stands, then what was asked for, then the choice of the group. */
    { STATE_TINY, STAGE_CLOSED, .is_finishing = YES, .step = STORY_CONCLUDE },
    { STATE_TINY, STAGE_CLOSED, .is_finishing = NO, .is_stopped = YES, .step = STORY_STOP },
    { STATE_TINY, STAGE_LOST, .is_stopped = NO, .step = STORY_LOSE },
    { STATE_TINY, STAGE_LOST, .is_stopped = YES, .step = STORY_STOP },
    { STATE_FULL, STAGE_CLOSED, .is_finishing = YES, .step = STORY_CONCLUDE },
    { STATE_FULL, STAGE_CLOSED, .is_finishing = NO, .is_stopped = YES, .step = STORY_STOP },
    { STATE_FULL, STAGE_CLOSED, .is_finishing = NO, .is_stopped = NO, .is_parking = YES, .step = STORY_PARK },
    { STATE_FULL, STAGE_LOST, .is_stopped = NO, .step = STORY_LOSE },
    { STATE_FULL, STAGE_LOST, .is_stopped = YES, .step = STORY_STOP },
    { STATE_TIMING, STAGE_CLOSED, .is_finishing = YES, .step = STORY_CONCLUDE },
    { STATE_TIMING, STAGE_CLOSED, .is_finishing = NO, .is_stopped = YES, .step = STORY_STOP },
    { STATE_TIMING, STAGE_LOST, .is_stopped = NO, .step = STORY_LOSE },
    { STATE_TIMING, STAGE_LOST, .is_stopped = YES, .step = STORY_STOP },
};

static bool
fits(int wanted, bool is)
{
    return wanted == ANY || (wanted == YES) == is;
}

/* What the rows say; what none of them names is illegal. */
static enum story_step
expected(enum state state, enum stage_event event, const struct story_facts *f)
{
    enum story_step found = STORY_ILLEGAL;
    int n = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];
        if (r->state != state || r->event != event || !fits(r->goes_on, f->goes_on) ||
            !fits(r->will_park, f->will_park) || !fits(r->needs_fresh, f->needs_fresh) ||
            !fits(r->is_stopped, f->is_stopped) || !fits(r->is_finishing, f->is_finishing) ||
            !fits(r->is_parking, f->is_parking))
            continue;
        found = r->step;
        n++;
    }
    assert_true(n <= 1);
    return found;
}

static void
every_report_in_every_state_leads_where_the_table_says(void **state)
{
    int legal = 0;

    (void)state;
    for (int s = 0; s < STATE_NSTATES; s++)
        for (int e = 0; e < STAGE_NEVENTS; e++)
            for (unsigned bits = 0; bits < 64; bits++) {
                const struct story_facts facts = { bits & 1,      bits >> 1 & 1, bits >> 2 & 1,
                                                   bits >> 3 & 1, bits >> 4 & 1, bits >> 5 & 1 };
                enum story_step wanted = expected((enum state)s, (enum stage_event)e, &facts);
                enum story_step found = story_next((enum state)s, (enum stage_event)e, &facts);
                if (found != wanted)
                    fail_msg("in state %s, report %d, facts %#x: %s, and not %s", state_name((enum state)s),
                             e, bits, story_step_name(found), story_step_name(wanted));
                legal += found != STORY_ILLEGAL;
            }
    assert_true(legal > 0);
}

/* The move that a step makes is one that the table of moves has. */
static void
every_step_moves_as_the_table_of_moves_allows(void **state)
{
    static const struct {
        enum story_step step;
        enum event event;
    } moves[] = {
        { STORY_NEXT, EVENT_NEXT },       { STORY_NEXT_FRESH, EVENT_NEXT }, { STORY_READY, EVENT_NEXT },
        { STORY_PARK, EVENT_PARK },       { STORY_FINISH, EVENT_FINISH },   { STORY_CONCLUDE, EVENT_FINISH },
        { STORY_CONCLUDE, EVENT_RETURN }, { STORY_STOP, EVENT_CANCEL },     { STORY_STOP, EVENT_RETURN },
        { STORY_LOSE, EVENT_RETURN },     { STORY_LOSE, EVENT_FINISH },
    };
    int checked = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t k = 0; k < sizeof(moves) / sizeof(moves[0]); k++) {
            if (rows[i].step != moves[k].step)
                continue;
            if (state_after(rows[i].state, moves[k].event) == STATE_ILLEGAL)
                fail_msg("%s in state %s: %s is no move of it", story_step_name(rows[i].step),
                         state_name(rows[i].state), event_name(moves[k].event));
            checked++;
        }
    assert_true(checked > 30);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_report_in_every_state_leads_where_the_table_says),
        cmocka_unit_test(every_step_moves_as_the_table_of_moves_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
