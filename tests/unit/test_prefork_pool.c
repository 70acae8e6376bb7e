/* test_prefork_pool.c - which children wait, and what becomes of them, with a zygote and children of our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/workers/prefork_pool.h"

/* --- a zygote, and its children --- */

struct child {
    char name[8];
    const struct child_ops *ops;
    void *arg;
    struct child_end end;
    int64_t limit_ms;
    const char *scratch;
    bool is_killed, is_freed;
};

#define CHILDREN 64

static struct child children[CHILDREN];
static int made;
static bool is_up, is_full;

bool
zygote_is_ready(const struct zygote *z)
{
    (void)z;
    return is_up;
}

int
child_new(struct zygote *z, enum child_role role, const struct child_ops *ops, void *arg, struct child **out,
          struct error *err)
{
    (void)z;
    (void)role;
    if (is_full)
        return error_set(err, ERR_FULL, "no user id");
    assert_true(made < CHILDREN);
    *out = &children[made];
    **out = (struct child){ .ops = ops, .arg = arg, .scratch = "/" };
    snprintf((*out)->name, sizeof((*out)->name), "c%d", made++);
    return 0;
}

void
child_hand_over(struct child *c, const struct child_ops *ops, void *arg)
{
    c->ops = ops;
    c->arg = arg;
}

const char *
child_name(const struct child *c)
{
    return c->name;
}

const char *
child_scratch(const struct child *c)
{
    return c->scratch;
}

const struct child_end *
child_end(const struct child *c)
{
    return &c->end;
}

void
child_limit(struct child *c, int64_t limit_ms)
{
    c->limit_ms = limit_ms;
}

void
child_kill(struct child *c)
{
    c->is_killed = true;
}

void
child_free(struct child *c)
{
    c->is_freed = true;
}

void
child_abandon(struct child *c)
{
    c->is_killed = c->is_freed = true;
}

/* --- the pool's owner --- */

static int spawned, forgotten, lost, changed;
static bool is_refused;

static bool
spawned_cb(void *arg, struct child *c)
{
    (void)arg;
    (void)c;
    spawned++;
    return !is_refused;
}

static void
forget_cb(void *arg, const struct child *c)
{
    (void)arg;
    (void)c;
    forgotten++;
}

static void
lost_cb(void *arg, const struct child *c)
{
    (void)arg;
    (void)c;
    lost++;
}

static void
changed_cb(void *arg)
{
    (void)arg;
    changed++;
}

static const struct prefork_ops ops = { spawned_cb, forget_cb, lost_cb, changed_cb };
static const struct child_ops theirs;

static uv_loop_t loop;

static struct prefork_pool *
pool_of(const struct prefork_rules *rules)
{
    struct prefork_pool *p;
    struct error err;

    made = spawned = forgotten = lost = changed = 0;
    is_up = true;
    is_full = is_refused = false;
    uv_loop_init(&loop);
    assert_int_equal(prefork_pool_new(&loop, "test", NULL, CHILD_RUN, rules, &p, &err), 0);
    prefork_pool_fill(p, 0);
    return p;
}

static void
pool_end(struct prefork_pool *p)
{
    prefork_pool_abandon(p);
    prefork_pool_free(p);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void
due_cb(uv_handle_t *handle, void *arg)
{
    if (handle->type == UV_TIMER)
        *(uint64_t *)arg = uv_is_active(handle) ? uv_timer_get_due_in((uv_timer_t *)handle) : 0;
}

/* Milliseconds until it tries again; 0: no retry is pending. */
static uint64_t
retry_in(void)
{
    uint64_t ms = 0;

    uv_walk(&loop, due_cb, &ms);
    return ms;
}

static struct prefork_counts
counts(const struct prefork_pool *p)
{
    struct prefork_counts n;

    prefork_pool_count(p, &n);
    return n;
}

/* --- cases --- */

static void
as_many_wait_as_the_rule_says_and_the_oldest_is_taken(void **state)
{
    struct prefork_pool *p = pool_of(&(struct prefork_rules){ .most = 2 });

    (void)state;
    assert_int_equal(counts(p).kept, 2);
    assert_ptr_equal(prefork_pool_take(p, &theirs, p), &children[0]);
    assert_ptr_equal(children[0].ops, &theirs);
    assert_ptr_equal(children[0].arg, p);
    assert_int_equal(made, 2); /* it is replaced when the pool is asked to, and not before */
    prefork_pool_fill(p, 1);
    assert_int_equal(counts(p).kept, 3);
    for (int i = 1; i < 4; i++)
        assert_ptr_equal(prefork_pool_take(p, &theirs, p), &children[i]);
    assert_null(prefork_pool_take(p, &theirs, p));
    assert_int_equal(counts(p).taken, 4);
    assert_int_equal(counts(p).missed, 1);
    pool_end(p);
}

static void
an_empty_pool_makes_none_and_misses_none(void **state)
{
    struct prefork_pool *p = pool_of(&(struct prefork_rules){ .most = 0 });

    (void)state;
    assert_null(prefork_pool_take(p, &theirs, p));
    assert_int_equal(made, 0);
    assert_int_equal(counts(p).missed, 0);
    pool_end(p);
}

static void
one_with_ops_is_taken_only_when_it_is_ready(void **state)
{
    struct prefork_pool *p =
        pool_of(&(struct prefork_rules){ .most = 3, .making_max = 2, .warm_ms = 500, .ops = &ops });

    (void)state;
    assert_int_equal(counts(p).making, 2); /* no more at a time */
    assert_true(prefork_pool_is_forking(p));
    assert_int_equal(children[0].limit_ms, 500);
    prefork_pool_hold(p, true);
    assert_int_equal(children[0].limit_ms, 0);
    assert_true(prefork_pool_became_ready(p, "c0"));
    assert_int_equal(counts(p).ready, 0); /* it was not even spawned */
    children[0].ops->spawned(children[0].arg, &children[0]);
    children[1].ops->spawned(children[1].arg, &children[1]);
    assert_int_equal(spawned, 2);
    assert_false(prefork_pool_is_forking(p));
    assert_null(prefork_pool_take(p, &theirs, p));
    prefork_pool_hold(p, false);
    assert_int_equal(children[1].limit_ms, 500);
    assert_true(prefork_pool_became_ready(p, "c1"));
    assert_int_equal(children[1].limit_ms, 0);
    assert_false(prefork_pool_became_ready(p, "c9"));
    prefork_pool_fill(p, 0);
    assert_int_equal(counts(p).making, 2);
    assert_int_equal(counts(p).made, 1);
    assert_ptr_equal(prefork_pool_take(p, &theirs, p), &children[1]);
    pool_end(p);
    assert_int_equal(forgotten, 1); /* c0: the one that was spawned and not taken */
}

static void
one_that_was_ended_is_forgotten_once_and_never_taken(void **state)
{
    struct prefork_pool *p = pool_of(&(struct prefork_rules){ .most = 1, .warm_ms = 500, .ops = &ops });

    (void)state;
    children[0].ops->spawned(children[0].arg, &children[0]);
    prefork_pool_became_ready(p, "c0");
    assert_true(prefork_pool_end(p, "c0"));
    assert_true(children[0].is_killed);
    assert_null(prefork_pool_take(p, &theirs, p));
    assert_true(prefork_pool_is_forking(p)); /* it ends */
    children[0].ops->ended(children[0].arg, &children[0]);
    assert_true(children[0].is_freed);
    assert_int_equal(forgotten, 0);
    assert_int_equal(lost, 1);
    assert_false(prefork_pool_end(p, "c0"));
    pool_end(p);
}

/* What cleans /tmp removes the directories of children that wait for days: candidates failed for that. */
static void
one_without_its_directory_is_ended_and_never_taken(void **state)
{
    struct prefork_pool *p = pool_of(&(struct prefork_rules){ .most = 2, .warm_ms = 500, .ops = &ops });

    (void)state;
    for (int i = 0; i < 2; i++) {
        children[i].ops->spawned(children[i].arg, &children[i]);
        prefork_pool_became_ready(p, children[i].name);
    }
    children[0].scratch = "/nowhere";
    assert_ptr_equal(prefork_pool_take(p, &theirs, p), &children[1]);
    assert_true(children[0].is_killed);
    children[0].ops->ended(children[0].arg, &children[0]);
    assert_int_equal(forgotten, 1);
    pool_end(p);
}

static void
one_that_cannot_be_made_known_or_speaks_unasked_is_killed(void **state)
{
    struct prefork_pool *p = pool_of(&(struct prefork_rules){ .most = 2, .warm_ms = 500, .ops = &ops });

    (void)state;
    is_refused = true;
    children[0].ops->spawned(children[0].arg, &children[0]);
    children[1].ops->message(children[1].arg, &children[1], NULL);
    assert_true(children[0].is_killed && children[1].is_killed);
    pool_end(p);
    assert_int_equal(forgotten, 0);
}

static void
a_loss_stops_the_making_for_a_second_and_the_next_for_two(void **state)
{
    struct prefork_pool *p = pool_of(&(struct prefork_rules){ .most = 1 });

    (void)state;
    children[0].ops->ended(children[0].arg, &children[0]);
    prefork_pool_fill(p, 0);
    assert_int_equal(made, 1);
    assert_int_equal(counts(p).lost, 1);
    assert_int_equal(retry_in(), PREFORK_RETRY_MS);
    is_full = true;
    uv_run(&loop, UV_RUN_ONCE); /* a second later: it cannot be made */
    assert_int_equal(made, 1);
    assert_int_equal(retry_in(), 2 * PREFORK_RETRY_MS);
    pool_end(p);
}

static void
those_that_go_with_their_zygote_are_not_lost(void **state)
{
    struct prefork_pool *p = pool_of(&(struct prefork_rules){ .most = 1, .warm_ms = 500, .ops = &ops });

    (void)state;
    children[0].ops->spawned(children[0].arg, &children[0]);
    is_up = false;
    children[0].ops->ended(children[0].arg, &children[0]);
    prefork_pool_fill(p, 0);
    assert_int_equal(made, 1);
    assert_int_equal(lost + (int)counts(p).lost, 0);
    assert_int_equal(forgotten, 1);
    is_up = true;
    prefork_pool_fill(p, 0); /* no retry is pending */
    assert_int_equal(made, 2);
    pool_end(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_wait_as_the_rule_says_and_the_oldest_is_taken),
        cmocka_unit_test(an_empty_pool_makes_none_and_misses_none),
        cmocka_unit_test(one_with_ops_is_taken_only_when_it_is_ready),
        cmocka_unit_test(one_that_was_ended_is_forgotten_once_and_never_taken),
        cmocka_unit_test(one_without_its_directory_is_ended_and_never_taken),
        cmocka_unit_test(one_that_cannot_be_made_known_or_speaks_unasked_is_killed),
        cmocka_unit_test(a_loss_stops_the_making_for_a_second_and_the_next_for_two),
        cmocka_unit_test(those_that_go_with_their_zygote_are_not_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
