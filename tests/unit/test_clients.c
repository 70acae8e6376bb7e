/* test_clients.c - the records of clients, and what holds them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "server/queue/clients.h"
#include "server/store/store.h"

static void
a_name_leads_to_one_record_and_no_name_to_the_operators(void **state)
{
    struct clients *cs = clients_new();

    (void)state;
    assert_non_null(cs);
    assert_ptr_equal(clients_get(cs, "alice"), clients_get(cs, "alice"));
    assert_ptr_not_equal(clients_get(cs, "alice"), clients_get(cs, "bob"));
    assert_ptr_equal(clients_get(cs, NULL), clients_get(cs, ""));
    clients_free(cs);
}

static void
a_client_runs_no_more_at_a_time_than_its_quota_says(void **state)
{
    struct clients *cs = clients_new();

    (void)state;
    clients_configure(cs, "alice:running=2");
    struct client *alice = clients_get(cs, "alice"), *bob = clients_get(cs, "bob");
    for (int i = 0; i < 2; i++) {
        assert_true(client_may_have_slot(NULL, client_cpu(alice)));
        assert_true(client_may_have_device(NULL, client_device(alice)));
        client_begin_run(alice);
        client_begin_run(bob);
    }
    assert_false(client_may_have_slot(NULL, client_cpu(alice)));
    assert_false(client_may_have_device(NULL, client_device(alice)));
    assert_true(client_may_run(bob));
    client_end_run(alice);
    assert_true(client_may_run(alice));
    clients_free(cs);
}

/* For the next call alone: what is noted grows old. */
static void
what_other_nodes_know_of_a_client_counts(void **state)
{
    struct clients *cs = clients_new();
    int retry_s;

    (void)state;
    clients_configure(cs, "alice:queued=2,gpu_s=9");
    clients_note(cs, "alice", &(struct store_usage){ .queued = 2, .device_ms = 3000 });
    assert_int_equal(clients_admit(cs, "alice", 1, 0, &retry_s), QUOTA_QUEUED);
    assert_int_equal(clients_admit(cs, "alice", 1, 0, &retry_s), QUOTA_OK);
    client_used_device(clients_get(cs, "alice"), 5);
    clients_note(
        cs, "alice",
        &(struct store_usage){ .device_ms = 8000 }); /* the same seconds, which the store knows by now */
    assert_int_equal(clients_admit(cs, "alice", 1, 0, &retry_s), QUOTA_OK);
    clients_note(cs, "alice", &(struct store_usage){ .device_ms = 9000 });
    assert_int_equal(clients_admit(cs, "alice", 1, 0, &retry_s), QUOTA_GPU);
    clients_configure(cs, "alice:rate=10");
    clients_note(cs, "alice", &(struct store_usage){ .recent = 8 });
    assert_int_equal(clients_admit(cs, "alice", 3, 0, &retry_s), QUOTA_RATE);
    assert_in_range(retry_s, 1, 6); /* one of ten a minute */
    clients_note(cs, "alice", &(struct store_usage){ .recent = 8 });
    assert_int_equal(clients_admit(cs, "alice", 2, 0, &retry_s), QUOTA_OK);
    clients_free(cs);
}

/* As many as may run do so elsewhere. */
static void
one_that_is_held_runs_again_a_moment_later(void **state)
{
    struct clients *cs = clients_new();
    struct client *c = clients_get(cs, "alice");

    (void)state;
    assert_null(clients_limits(cs));
    clients_configure(cs, "alice:running=2 bob:rate=1");
    assert_string_equal(clients_limits(cs), "{\"alice\":2,\"bob\":2147483647}");
    assert_true(client_may_run(c));
    client_hold(c);
    assert_false(client_may_run(c));
    struct timespec moment = { 0, 300000000 };
    nanosleep(&moment, NULL);
    assert_true(client_may_run(c));
    clients_configure(cs, "alice:rate=1");
    assert_null(clients_limits(cs));
    clients_free(cs);
}

/* What runs does not wait: only the rest counts against `queued`. */
static void
what_waits_is_what_was_accepted_and_does_not_run(void **state)
{
    struct clients *cs = clients_new();
    int retry_s;

    (void)state;
    clients_configure(cs, "alice:queued=2");
    struct client *alice = clients_get(cs, "alice");
    client_add_submission(alice);
    client_add_registration(alice);
    assert_int_equal(clients_admit(cs, "alice", 1, 0, &retry_s), QUOTA_QUEUED);
    client_begin_run(alice);
    assert_int_equal(clients_admit(cs, "alice", 1, 0, &retry_s), QUOTA_OK);
    client_end_run(alice);
    client_drop_registration(alice);
    assert_int_equal(client_registrations(alice), 0);
    assert_int_equal(clients_admit(cs, "alice", 1, 0, &retry_s), QUOTA_OK);
    assert_int_equal(clients_admit(cs, "", 1000, 0, &retry_s), QUOTA_OK);
    clients_free(cs);
}

static void
quotas_that_cannot_be_read_leave_those_before(void **state)
{
    struct clients *cs = clients_new();

    (void)state;
    clients_configure(cs, "alice:running=2");
    clients_configure(cs, "alice:walking=2");
    assert_int_equal(clients_quota(cs, "alice")->running, 2);
    clients_configure(cs, "");
    assert_int_equal(clients_quota(cs, "alice")->running, 0);
    clients_free(cs);
}

/* Names are free text: without a bound, a stranger could fill the memory with them. */
static void
records_of_clients_with_nothing_here_go_and_the_others_stay(void **state)
{
    struct clients *cs = clients_new();
    char name[32];

    (void)state;
    struct client *busy = clients_get(cs, "busy"), *today = clients_get(cs, "today");
    client_add_submission(busy);
    client_used_device(today, 5);
    clients_configure(cs, "*:gpu_s=1");
    for (int i = 0; i < 50000; i++) {
        snprintf(name, sizeof(name), "stranger-%d", i);
        assert_non_null(clients_get(cs, name));
    }
    int retry_s;
    assert_ptr_equal(clients_get(cs, "busy"), busy);
    assert_int_equal(clients_admit(cs, "today", 1, 0, &retry_s), QUOTA_GPU);
    clients_free(cs);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_leads_to_one_record_and_no_name_to_the_operators),
        cmocka_unit_test(a_client_runs_no_more_at_a_time_than_its_quota_says),
        cmocka_unit_test(what_other_nodes_know_of_a_client_counts),
        cmocka_unit_test(what_waits_is_what_was_accepted_and_does_not_run),
        cmocka_unit_test(one_that_is_held_runs_again_a_moment_later),
        cmocka_unit_test(quotas_that_cannot_be_read_leave_those_before),
        cmocka_unit_test(records_of_clients_with_nothing_here_go_and_the_others_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
