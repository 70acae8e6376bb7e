/* test_single_flight.c - who leads, who follows, and what becomes of those who follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/submission/single_flight.h"

static void
the_first_of_a_key_leads_and_others_are_taken_in_order(void **state)
{
    struct single_flight *flight = flight_new();
    struct flight_member a = { 0 }, b = { 0 }, c = { 0 };

    (void)state;
    assert_null(flight_find(flight, "key"));
    flight_lead(flight, &a, "key");
    assert_ptr_equal(flight_find(flight, "key"), &a);
    assert_null(flight_find(flight, "other"));
    flight_follow(flight, &b, &a);
    flight_follow(flight, &c, &a);
    assert_int_equal(flight_following(flight), 2);
    flight_land(flight, &a);
    assert_null(flight_find(flight, "key"));
    assert_ptr_equal(flight_take_follower(flight, &a), &b);
    assert_false(flight_is_following(&b));
    assert_ptr_equal(flight_take_follower(flight, &a), &c);
    assert_null(flight_take_follower(flight, &a));
    assert_int_equal(flight_following(flight), 0);
    free(flight);
}

/* The verdict is not theirs to use: the first of them leads, and the others follow it. */
static void
a_follower_that_was_taken_may_lead_the_rest(void **state)
{
    struct single_flight *flight = flight_new();
    struct flight_member a = { 0 }, b = { 0 }, c = { 0 };

    (void)state;
    flight_lead(flight, &a, "key");
    flight_follow(flight, &b, &a);
    flight_follow(flight, &c, &a);
    flight_land(flight, &a);
    flight_lead(flight, flight_take_follower(flight, &a), "key");
    flight_follow(flight, flight_take_follower(flight, &a), &b);
    assert_ptr_equal(flight_find(flight, "key"), &b);
    assert_true(flight_is_following(&c));
    flight_leave(flight, &c);
    assert_null(flight_take_follower(flight, &b));
    flight_land(flight, &b);
    free(flight);
}

static void
whoever_leads_nothing_lands_without_harm(void **state)
{
    struct single_flight *flight = flight_new();
    struct flight_member a = { 0 }, b = { 0 };

    (void)state;
    flight_lead(flight, &a, "key");
    flight_follow(flight, &b, &a);
    flight_land(flight, &b);
    assert_ptr_equal(flight_find(flight, "key"), &a);
    flight_land(flight, &a);
    flight_land(flight, &a);
    free(flight);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_a_key_leads_and_others_are_taken_in_order),
        cmocka_unit_test(a_follower_that_was_taken_may_lead_the_rest),
        cmocka_unit_test(whoever_leads_nothing_lands_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
