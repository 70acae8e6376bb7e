#include "client/trainer/window.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What the work does is told by the test: an item is held until it is let go. */
struct stage {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int begun, at_once, most_at_once;
    bool may_end[32], fails[32], was_begun[32];
};

static bool
work(void *arg, int thread, void *item)
{
    struct stage *s = arg;
    int i = *(int *)item;

    pthread_mutex_lock(&s->mutex);
    s->begun++;
    s->was_begun[i] = true;
    s->at_once++;
    s->most_at_once = s->at_once > s->most_at_once ? s->at_once : s->most_at_once;
    pthread_cond_broadcast(&s->changed);
    while (!s->may_end[i])
        pthread_cond_wait(&s->changed, &s->mutex);
    s->at_once--;
    bool goes_on = !s->fails[i] && thread >= 0;
    pthread_mutex_unlock(&s->mutex);
    return goes_on;
}

static void
wait_begun(struct stage *s, int n)
{
    pthread_mutex_lock(&s->mutex);
    while (s->begun < n)
        pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

static void
let_go(struct stage *s, int i)
{
    pthread_mutex_lock(&s->mutex);
    s->may_end[i] = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void
stage_init(struct stage *s, int items[32])
{
    *s = (struct stage){ .begun = 0 };
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    for (int i = 0; i < 32; i++)
        items[i] = i;
}

static void
the_order_is_that_of_the_putting(void **state)
{
    struct stage s;
    struct window *w;
    struct error err;
    int items[32];
    bool is_done;
    (void)state;

    stage_init(&s, items);
    assert_int_equal(window_new(6, 3, work, &s, &w, &err), 0);
    for (int i = 0; i < 6; i++) {
        assert_false(window_is_full(w));
        window_put(w, &items[i], i == 1); /* the second needs no work */
    }
    assert_true(window_is_full(w));
    wait_begun(&s, 3); /* 0, 2 and 3 */
    assert_false(s.was_begun[1] || s.was_begun[4]);
    let_go(&s, 3);
    let_go(&s, 2);
    wait_begun(&s, 5);
    assert_null(window_take(w, false, &is_done)); /* the first is not done, whatever the others are */
    assert_int_equal(window_count(w), 6);
    let_go(&s, 0);
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(window_take(w, true, &is_done), &items[i]);
        assert_true(is_done);
    }
    for (int i = 6; i < 10; i++) /* round the ring */
        window_put(w, &items[i], false);
    for (int i = 4; i < 10; i++)
        let_go(&s, i);
    for (int i = 4; i < 10; i++)
        assert_ptr_equal(window_take(w, true, &is_done), &items[i]);
    assert_null(window_take(w, true, &is_done)); /* empty: it waits for nothing */
    assert_int_equal(window_count(w), 0);
    assert_int_equal(s.most_at_once, 3);
    assert_int_equal(s.begun, 9);
    window_free(w);
}

static void
after_a_failure_nothing_is_begun(void **state)
{
    struct stage s;
    struct window *w;
    struct error err;
    int items[32];
    bool is_done;
    (void)state;

    stage_init(&s, items);
    s.fails[1] = true;
    assert_int_equal(window_new(8, 2, work, &s, &w, &err), 0);
    for (int i = 0; i < 5; i++)
        window_put(w, &items[i], i == 3);
    wait_begun(&s, 2);
    let_go(&s, 1);
    let_go(&s, 0);
    for (int i = 0; i < 2; i++) { /* what was begun before it is done */
        assert_ptr_equal(window_take(w, true, &is_done), &items[i]);
        assert_true(is_done);
    }
    window_stop(w);
    for (int i = 2; i < 5; i++) {
        let_go(&s, i); /* a thread that was between two items may have begun one before it heard */
        assert_ptr_equal(window_take(w, true, &is_done), &items[i]);
        assert_true(is_done == (i == 3 || s.was_begun[i]));
    }
    assert_null(window_take(w, true, &is_done));
    window_free(w);
}

static void
without_threads_it_is_a_queue(void **state)
{
    struct window *w;
    struct error err;
    int items[2] = { 0, 1 };
    bool is_done;
    (void)state;

    assert_int_equal(window_new(1, 0, NULL, NULL, &w, &err), 0);
    for (int i = 0; i < 2; i++) {
        window_put(w, &items[i], true);
        assert_true(window_is_full(w));
        assert_ptr_equal(window_take(w, false, &is_done), &items[i]);
        assert_true(is_done);
    }
    window_free(w);
    window_free(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_that_of_the_putting),
        cmocka_unit_test(after_a_failure_nothing_is_begun),
        cmocka_unit_test(without_threads_it_is_a_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
