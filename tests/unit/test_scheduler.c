/* test_scheduler.c - who has a slot or a device next, with device workers that only say what they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/queue/scheduler.h"

/* --- device workers: the three calls that the scheduler makes --- */

struct device_worker {
    enum device_state state;
    const char *reference;
};

enum device_state
device_worker_state(const struct device_worker *l)
{
    return l->state;
}

bool
device_worker_has_reference(const struct device_worker *l, const char *task_id)
{
    return l->reference && strcmp(l->reference, task_id) == 0;
}

/* --- a world of two device workers, some slots and jobs by name --- */

#define JOBS 16

struct named {
    char name;
    bool is_ended; /* prepare() finds that it needs no slot */
    struct scheduler_job job;
};

static struct world {
    struct device_worker device_workers[2], *pointers[2];
    struct named jobs[JOBS];
    int n;
    struct clients *clients;
    struct scheduler *q;
    bool has_no_cpu;
    char log[256]; /* "b:A " began, "0:A " has device worker 0, in order */
    int kicks;
} w;

static struct named *
named(struct scheduler_job *job)
{
    return scheduler_owner(job, struct named, job);
}

static bool
has_cpu(void *arg)
{
    (void)arg;
    return !w.has_no_cpu;
}

static enum scheduler_prepared
prepare(void *arg, struct scheduler_job *job)
{
    (void)arg;
    return named(job)->is_ended ? SCHEDULER_LEAVES : SCHEDULER_BEGIN;
}

static void
note(char what, struct scheduler_job *job)
{
    size_t n = strlen(w.log);

    snprintf(w.log + n, sizeof(w.log) - n, "%c:%c ", what, named(job)->name);
}

static void
begin(void *arg, struct scheduler_job *job)
{
    (void)arg;
    note('b', job);
}

static void
place(void *arg, struct scheduler_job *job, struct device_worker *l)
{
    (void)arg;
    l->state = DEVICE_BUSY;
    note(l == &w.device_workers[0] ? '0' : '1', job);
}

static void
kicked(void *arg)
{
    (void)arg;
    w.kicks++;
}

static const struct scheduler_ops ops = { has_cpu, prepare, begin, place, kicked };

static int
make_world(void **state)
{
    (void)state;
    memset(&w, 0, sizeof(w));
    for (int i = 0; i < 2; i++) {
        w.device_workers[i].state = DEVICE_IDLE;
        w.pointers[i] = &w.device_workers[i];
    }
    w.clients = clients_new();
    w.q = scheduler_new(2, w.pointers, 2, &ops, NULL);
    return w.clients && w.q ? 0 : -1;
}

static int
end_world(void **state)
{
    (void)state;
    scheduler_free(w.q);
    clients_free(w.clients);
    return 0;
}

static struct scheduler_job *
job(char name, const char *client, int urgency)
{
    struct named *made = &w.jobs[w.n++];

    assert_true(w.n <= JOBS);
    made->name = name;
    made->job.client = clients_get(w.clients, client);
    made->job.urgency = urgency;
    return &made->job;
}

static struct scheduler_job *
queued(char name, const char *client, int urgency)
{
    struct scheduler_job *made = job(name, client, urgency);

    scheduler_add_for_slot(w.q, made, false);
    return made;
}

static struct scheduler_job *
ready_for(char name, const char *reference)
{
    struct scheduler_job *made = job(name, "alice", FAIR_INTERACTIVE);

    snprintf(made->reference, sizeof(made->reference), "%s", reference);
    scheduler_add_for_device(w.q, made, false);
    return made;
}

static void
kick_gives(const char *expected)
{
    w.log[0] = '\0';
    scheduler_kick(w.q);
    assert_string_equal(w.log, expected);
}

static void
slots_are_given_in_fair_order_and_no_more_than_there_are(void **state)
{
    (void)state;
    struct scheduler_job *a = queued('A', "alice", FAIR_INTERACTIVE);
    queued('B', "alice", FAIR_INTERACTIVE);
    queued('C', "bob", FAIR_INTERACTIVE);
    queued('D', "bob", FAIR_BATCH);
    kick_gives("b:A b:B ");
    assert_int_equal(scheduler_waiting(w.q), 2);
    scheduler_release_slot(w.q, a);
    scheduler_release_slot(w.q, a); /* it has none any more: nothing happens */
    kick_gives("b:C ");
    kick_gives("");
    assert_int_equal(w.kicks, 3);
}

static void
nothing_begins_without_workers_or_while_paused_or_draining(void **state)
{
    (void)state;
    queued('A', "alice", FAIR_INTERACTIVE);
    w.has_no_cpu = true;
    kick_gives("");
    w.has_no_cpu = false;
    scheduler_pause(w.q, true);
    kick_gives("");
    scheduler_pause(w.q, false);
    scheduler_drain(w.q);
    kick_gives("");
}

static void
one_that_has_ended_leaves_the_queue_without_a_slot(void **state)
{
    struct scheduler_counts n;

    (void)state;
    queued('A', "alice", FAIR_INTERACTIVE);
    w.jobs[0].is_ended = true;
    queued('B', "alice", FAIR_INTERACTIVE);
    kick_gives("b:B ");
    scheduler_count(w.q, &n);
    assert_int_equal(n.cpu_running, 1);
    assert_int_equal(n.queued[FAIR_INTERACTIVE], 0);
    assert_false(scheduler_waits(&w.jobs[0].job));
}

static void
a_suspect_begins_when_no_slot_is_taken_and_nobody_begins_then(void **state)
{
    (void)state;
    struct scheduler_job *a = queued('A', "alice", FAIR_INTERACTIVE);
    struct scheduler_job *s = queued('S', "alice", FAIR_INTERACTIVE);
    s->is_suspect = true;
    queued('B', "alice", FAIR_INTERACTIVE);
    kick_gives("b:A ");
    assert_false(scheduler_is_sole(w.q, a));
    scheduler_release_slot(w.q, a);
    kick_gives("b:S ");
    assert_true(scheduler_is_sole(w.q, s));
    scheduler_release_slot(w.q, s);
    kick_gives("b:B ");
}

static void
a_rerun_has_slots_and_devices_to_itself_until_it_ends(void **state)
{
    (void)state;
    struct scheduler_job *r = job('R', "alice", FAIR_INTERACTIVE);
    assert_true(scheduler_promise_rerun(w.q, r));
    scheduler_add_for_slot(w.q, r, true);
    queued('B', "bob", FAIR_INTERACTIVE);
    ready_for('C', "task"); /* on a device already when the rerun becomes due */
    w.device_workers[1].state = DEVICE_STARTING;
    kick_gives("0:C ");
    scheduler_release_device(w.q, &w.jobs[2].job);
    w.device_workers[0].state = DEVICE_IDLE;
    ready_for('D', "task");
    kick_gives("b:R ");
    assert_true(scheduler_is_isolated(w.q, r));
    scheduler_release_slot(w.q, r);
    scheduler_add_for_device(w.q, r, false);
    kick_gives("0:R ");
    w.device_workers[0].state = DEVICE_IDLE;
    scheduler_release_device(w.q, r);
    kick_gives(""); /* it is not over before it says so */
    scheduler_end_rerun(w.q, r);
    kick_gives("0:D b:B ");
}

static void
a_submission_goes_where_its_reference_is(void **state)
{
    (void)state;
    w.device_workers[1].reference = "task-1";
    ready_for('A', "task-1");
    kick_gives("1:A ");
    ready_for('B', "task-1"); /* that device worker works: it goes to the other */
    kick_gives("0:B ");
}

static void
one_whose_reference_is_there_goes_first_but_not_for_ever(void **state)
{
    char name = 'B';

    (void)state;
    w.device_workers[0].reference = "task-0";
    w.device_workers[1].reference = "task-1";
    w.device_workers[0].state = DEVICE_BUSY;
    ready_for('A', "task-0");
    for (int i = 0; i < 5; i++)
        ready_for((char)(name + i), "task-1");
    for (int i = 0; i < 4; i++) {
        char expected[8] = { '1', ':', (char)(name + i), ' ', '\0' };
        kick_gives(expected);
        scheduler_release_device(w.q, &w.jobs[1 + i].job);
        w.device_workers[1].state = DEVICE_IDLE;
    }
    kick_gives("1:A ");
}

static void
registrations_alone_have_devices_while_paused_whoever_asked(void **state)
{
    (void)state;
    ready_for('A', "task");
    struct scheduler_job *r = job('R', "bob", FAIR_BATCH), *t = job('T', "carol", FAIR_INTERACTIVE);
    r->is_registration = t->is_registration = true;
    scheduler_add_for_device(w.q, r, true);
    scheduler_add_for_device(w.q, t, true);
    scheduler_pause(w.q, true);
    kick_gives("0:T 1:R ");
    struct scheduler_counts n;
    scheduler_count(w.q, &n);
    assert_int_equal(n.gpu_running, 0);
    assert_int_equal(n.ready[FAIR_INTERACTIVE], 1);
    assert_int_equal(n.ready[FAIR_BATCH], 0);
}

static void
who_becomes_more_urgent_is_served_as_such(void **state)
{
    (void)state;
    struct scheduler_job *a = queued('A', "alice", FAIR_BATCH);
    queued('B', "bob", FAIR_INTERACTIVE);
    scheduler_hurry(w.q, a, FAIR_INTERACTIVE);
    scheduler_hurry(w.q, a, FAIR_BATCH); /* less urgent: it stays as it is */
    struct scheduler_counts n;
    scheduler_count(w.q, &n);
    assert_int_equal(n.queued[FAIR_INTERACTIVE], 2);
    assert_int_equal(n.queued[FAIR_BATCH], 0);
    kick_gives("b:B b:A ");
}

static void
a_client_at_its_quota_waits_and_the_others_do_not(void **state)
{
    (void)state;
    clients_configure(w.clients, "alice:running=1");
    queued('A', "alice", FAIR_INTERACTIVE);
    queued('B', "alice", FAIR_INTERACTIVE);
    queued('C', "bob", FAIR_BATCH);
    kick_gives("b:A b:C ");
}

#define SCHEDULING(test) cmocka_unit_test_setup_teardown(test, make_world, end_world)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SCHEDULING(slots_are_given_in_fair_order_and_no_more_than_there_are),
        SCHEDULING(nothing_begins_without_workers_or_while_paused_or_draining),
        SCHEDULING(one_that_has_ended_leaves_the_queue_without_a_slot),
        SCHEDULING(a_suspect_begins_when_no_slot_is_taken_and_nobody_begins_then),
        SCHEDULING(a_rerun_has_slots_and_devices_to_itself_until_it_ends),
        SCHEDULING(a_submission_goes_where_its_reference_is),
        SCHEDULING(one_whose_reference_is_there_goes_first_but_not_for_ever),
        SCHEDULING(registrations_alone_have_devices_while_paused_whoever_asked),
        SCHEDULING(who_becomes_more_urgent_is_served_as_such),
        SCHEDULING(a_client_at_its_quota_waits_and_the_others_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
