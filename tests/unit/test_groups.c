/* test_groups.c - what a group decides, by how its members fare. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/submission/groups.h"

static struct world {
    uv_loop_t loop;
    struct groups *groups;
    struct group *late; /* whose deadline passed */
} w;

static void
deadline_cb(void *arg, struct group *g)
{
    (void)arg;
    w.late = g;
}

static int
make_world(void **state)
{
    (void)state;
    uv_loop_init(&w.loop);
    w.groups = groups_new(&w.loop, deadline_cb, NULL);
    w.late = NULL;
    return w.groups ? 0 : -1;
}

static int
end_world(void **state)
{
    (void)state;
    groups_free(w.groups);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&w.loop);
}

static struct group *
group_of(const char *request, int members)
{
    AUTO_JSON json_t *document = json_loads(request, 0, NULL);
    struct group *g = groups_get(w.groups, "g");

    group_configure(g, document, 0);
    for (int i = 0; i < members; i++)
        group_join(g);
    return g;
}

static void
a_group_is_found_until_it_ends(void **state)
{
    (void)state;
    assert_null(groups_find(w.groups, "g"));
    struct group *g = group_of("{}", 1);
    assert_true(group_is_new(g));
    assert_ptr_equal(groups_find(w.groups, "g"), g);
    assert_true(group_finish_one(g, false, true));
    assert_null(groups_find(w.groups, "g")); /* whoever is woken by its end does not find it */
    group_free(g);
}

static void
it_is_decided_once_as_soon_as_enough_are_correct(void **state)
{
    (void)state;
    struct group *g = group_of("{\"stop\": {\"correct\": 2}}", 4);
    assert_true(group_stops_early(g));
    group_add_correct(g);
    assert_false(group_decides(g));
    assert_false(group_finish_one(g, false, false));
    assert_false(group_decides(g));
    assert_false(group_finish_one(g, false, true));
    assert_true(group_decides(g));
    assert_false(group_decides(g));
}

/* Those that are right in full and wait count before they are timed. */
static void
those_that_wait_to_be_timed_count_as_correct(void **state)
{
    struct group_member a = { .rough_ms = NAN }, *chosen[4];

    (void)state;
    struct group *g = group_of("{\"stop\": {\"correct\": 1}, \"time_top_k\": 1}", 2);
    group_park(g, &a);
    assert_true(group_decides(g));
    group_finish_one(g, false, false);
    assert_int_equal(group_choose(g, chosen), 1);
}

static void
the_fastest_are_chosen_once_nobody_could_be_faster(void **state)
{
    struct group_member slow = { .index = 0, .rough_ms = 3 }, fast = { .index = 1, .rough_ms = 1 },
                        unknown = { .index = 2, .rough_ms = NAN }, *all[4];

    (void)state;
    struct group *g = group_of("{\"time_top_k\": 2}", 5);
    assert_true(group_times_some(g));
    group_park(g, &unknown);
    group_park(g, &slow);
    group_park(g, &fast);
    assert_int_equal(group_choose(g, all), 0); /* two are on their way */
    group_begin_following(g);                  /* one of them waits for another's verdict */
    assert_int_equal(group_choose(g, all), 0);
    group_finish_one(g, false, false);
    assert_int_equal(group_choose(g, all), 3);
    assert_ptr_equal(all[0], &fast);
    assert_ptr_equal(all[1], &slow);
    assert_ptr_equal(all[2], &unknown);
    assert_true(fast.is_chosen && slow.is_chosen && !unknown.is_chosen);
    assert_false(fast.is_parked || slow.is_parked || unknown.is_parked);
}

/* Chosen ones are on their way again: a late one waits for them, and takes no place beyond the number. */
static void
no_more_are_chosen_than_were_asked_for_however_late(void **state)
{
    struct group_member first = { .rough_ms = 2 }, late = { .index = 1, .rough_ms = 1 }, *all[4];

    (void)state;
    struct group *g = group_of("{\"time_top_k\": 1}", 2);
    group_begin_following(g);
    group_park(g, &first);
    assert_int_equal(group_choose(g, all), 1);
    assert_true(first.is_chosen);
    group_end_following(g);
    group_park(g, &late);
    assert_int_equal(group_choose(g, all), 1);
    assert_false(late.is_chosen);
}

static void
a_deadline_counts_from_when_the_group_came(void **state)
{
    (void)state;
    AUTO_JSON json_t *request = json_loads("{\"deadline_s\": 5}", 0, NULL);
    struct group *g = groups_get(w.groups, "g");
    group_configure(g, request, 6000); /* a restart of the daemon does not prolong it */
    uv_run(&w.loop, UV_RUN_ONCE);
    assert_ptr_equal(w.late, g);
}

#define GROUPED(test) cmocka_unit_test_setup_teardown(test, make_world, end_world)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        GROUPED(a_group_is_found_until_it_ends),
        GROUPED(it_is_decided_once_as_soon_as_enough_are_correct),
        GROUPED(those_that_wait_to_be_timed_count_as_correct),
        GROUPED(the_fastest_are_chosen_once_nobody_could_be_faster),
        GROUPED(no_more_are_chosen_than_were_asked_for_however_late),
        GROUPED(a_deadline_counts_from_when_the_group_came),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
