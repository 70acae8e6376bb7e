#include "client/trainer/window.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum slot_state { SLOT_WAITING, SLOT_BUSY, SLOT_DONE };

/* A ring: items are begun in the order in which they came, so that the oldest is never one that waits behind a younger one. */
struct slot {
    void *item;
    enum slot_state state;
};

struct window {
    pthread_mutex_t mutex;
    pthread_cond_t has_work, has_done;
    struct slot *slots;
    size_t most, first, count, begun; /* begun: of those in it, from the first on */
    bool is_over;
    window_cb *work;
    void *arg;
    pthread_t *threads;
    int n_threads, next_number;
};

static struct slot *
slot_at(const struct window *w, size_t i)
{
    return &w->slots[(w->first + i) % w->most];
}

/* What is begun is also what was put done. */
static void
skip_done(struct window *w)
{
    while (w->begun < w->count && slot_at(w, w->begun)->state != SLOT_WAITING)
        w->begun++;
}

static void *
thread_main(void *arg)
{
    struct window *w = arg;

    pthread_mutex_lock(&w->mutex);
    int number = w->next_number++;
    while (!w->is_over) {
        if (w->begun == w->count) {
            pthread_cond_wait(&w->has_work, &w->mutex);
            continue;
        }
        struct slot *slot = slot_at(w, w->begun);
        slot->state = SLOT_BUSY;
        skip_done(w);
        pthread_mutex_unlock(&w->mutex);
        bool goes_on = w->work(w->arg, number, slot->item);
        pthread_mutex_lock(&w->mutex);
        slot->state = SLOT_DONE;
        w->is_over = w->is_over || !goes_on;
        if (w->is_over)
            pthread_cond_broadcast(&w->has_work);
        pthread_cond_signal(&w->has_done);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int
window_new(size_t most, int threads, window_cb *work, void *arg, struct window **out, struct error *err)
{
    struct window *w = calloc(1, sizeof(*w));

    *out = NULL;
    if (!w)
        return error_set(err, ERR_NOMEM, "out of memory");
    w->slots = calloc(most, sizeof(*w->slots));
    w->threads = calloc((size_t)threads + 1, sizeof(*w->threads));
    w->most = most;
    w->work = work;
    w->arg = arg;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->has_work, NULL);
    pthread_cond_init(&w->has_done, NULL);
    if (!w->slots || !w->threads) {
        window_free(w);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    while (w->n_threads < threads && pthread_create(&w->threads[w->n_threads], NULL, thread_main, w) == 0)
        w->n_threads++;
    if (threads > 0 && w->n_threads == 0) {
        window_free(w);
        return error_set(err, ERR_SYS, "cannot start a thread");
    }
    *out = w;
    return 0;
}

void
window_stop(struct window *w)
{
    pthread_mutex_lock(&w->mutex);
    w->is_over = true;
    pthread_cond_broadcast(&w->has_work);
    pthread_cond_signal(&w->has_done);
    pthread_mutex_unlock(&w->mutex);
}

void
window_free(struct window *w)
{
    if (!w)
        return;
    window_stop(w);
    while (w->n_threads > 0)
        pthread_join(w->threads[--w->n_threads], NULL);
    pthread_cond_destroy(&w->has_done);
    pthread_cond_destroy(&w->has_work);
    pthread_mutex_destroy(&w->mutex);
    free(w->threads);
    free(w->slots);
    free(w);
}

/* count is changed by the thread that asks alone. */
bool
window_is_full(const struct window *w)
{
    return w->count == w->most;
}

size_t
window_count(const struct window *w)
{
    return w->count;
}

void
window_put(struct window *w, void *item, bool is_done)
{
    pthread_mutex_lock(&w->mutex);
    *slot_at(w, w->count) = (struct slot){ item, is_done ? SLOT_DONE : SLOT_WAITING };
    w->count++;
    skip_done(w);
    pthread_cond_signal(&w->has_work);
    pthread_mutex_unlock(&w->mutex);
}

void *
window_take(struct window *w, bool must_wait, bool *is_done)
{
    void *item = NULL;

    pthread_mutex_lock(&w->mutex);
    for (;;) {
        struct slot *oldest = slot_at(w, 0);
        bool is_left = w->count > 0 && oldest->state == SLOT_WAITING && w->is_over;
        *is_done = w->count > 0 && oldest->state == SLOT_DONE;
        if (*is_done || is_left) {
            item = oldest->item;
            w->first = (w->first + 1) % w->most;
            w->count--;
            w->begun -= w->begun > 0;
            break;
        }
        if (w->count == 0 || !must_wait)
            break;
        pthread_cond_wait(&w->has_done, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return item;
}
