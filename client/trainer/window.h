/*
 * window.h - work that several threads do at once, bounded, and given back in the order in which it was given. One thread puts and
 * takes.
 */
#ifndef TRAINER_WINDOW_H
#define TRAINER_WINDOW_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

struct window;

/* Does the work of an item, in the thread of that number (from 0). False: nothing that was not begun is begun any more. */
typedef bool window_cb(void *arg, int thread, void *item);

/*
 *   most     items that it holds, 1 or more
 *   threads  how many do the work; 0: all items are put done, and work is NULL
 * *out: free with window_free(). ERR_NOMEM, ERR_SYS (not one thread can be had).
 */
int window_new(size_t most, int threads, window_cb *work, void *arg, struct window **out, struct error *err);
/* What was begun ends first. The items that are still in it are the caller's to take before: they are not freed. */
void window_free(struct window *w);

bool window_is_full(const struct window *w);
size_t window_count(const struct window *w);
/* item is borrowed until it is taken. is_done: there is no work to do. The window is not full. */
void window_put(struct window *w, void *item, bool is_done);
/*
 * The oldest item: waits until its work is done. NULL: there is none, or must_wait is false and it is not done yet. After a work has
 * said false the items behind it come as they are; *is_done tells.
 */
void *window_take(struct window *w, bool must_wait, bool *is_done);
/* Begin nothing more. */
void window_stop(struct window *w);

#endif
