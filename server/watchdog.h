/*
 * watchdog.h - how long the turns of a loop are: while one lasts nothing else is served. Loop thread only.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <stdint.h>

#include <uv.h>

#define WATCHDOG_LONG_NS 2000000 /* a turn should take no longer */

struct watchdog {
    uv_loop_t *loop;
    uint64_t turned_ns, idle_ns; /* at the end of the last turn */
    int64_t n_long;              /* turns that took longer than WATCHDOG_LONG_NS */
    uint64_t longest_ns;
};

/* The loop counts its idle time from now on. */
void watchdog_init(struct watchdog *w, uv_loop_t *loop);
/* A turn ends: to be called once in each, before the loop sleeps. */
void watchdog_turn(struct watchdog *w);
/* The same with what the clocks say. Pure. */
void watchdog_count(struct watchdog *w, uint64_t now_ns, uint64_t idle_ns);

#endif
