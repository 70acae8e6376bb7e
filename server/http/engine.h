/* engine.h - the engine: what the files of http/ share of it. Private to http/. Loop thread. */
#ifndef HTTP_ENGINE_H
#define HTTP_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <microhttpd.h>
#include <uv.h>

#include "common/histogram.h"
#include "server/config.h"
#include "server/http/events.h"
#include "server/http/linger.h"
#include "server/store/store.h"
#include "server/submission/funnel.h"
#include "server/token.h"
#include "server/watchdog.h"

/*
 * Larger bodies are parsed in libuv's pool: the loop would do nothing else for 12 ns a byte. Those of a usual submission
 * only as long as few are there: what removes directories uses the same pool, and may take its time.
 */
#define HTTP_PARSE_INLINE_MAX (64 * 1024)
#define HTTP_PARSE_SMALL_MAX (2 * 1024)
#define HTTP_PARSE_BESIDE 2
#define HTTP_CONNECTION_MEMORY (16 * 1024) /* MHD's pool for each connection: bounds the header */
#define HTTP_REFUSED_MOST 64               /* connections beyond the limit that are being refused */
#define HTTP_ROUTES_MAX 96
#define HTTP_ROUTES_REST \
    (HTTP_ROUTES_MAX - 1)                   /* what has no route: the dashboard's files, and early refusals */
#define HTTP_IDLE_MS 60000                  /* between two requests of a connection */
#define HTTP_WORK_LOOK_MS 5000              /* whether there can be an answer soon */
#define HTTP_STORE_LIMIT_MS 10000           /* for one transaction: longer ones are not waited for */
#define HTTP_WORK_LIMIT_MS (15 * 60 * 1000) /* backstop: the funnel answers long before */

struct connection;
struct exchange;
struct route;

struct http {
    uv_loop_t *loop;
    const struct config *config;
    struct funnel *funnel;
    struct store *store;
    struct keyring *keyring;
    struct retention *retention;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;       /* on MHD's own epoll descriptor */
    uv_prepare_t prepare; /* before the loop sleeps: pending resumes, MHD's timeout */
    uv_timer_t timer;
    struct watchdog watchdog;
    void (*overdue_cb)(struct connection *c); /* its deadline has come */
    void (*gone_cb)(struct connection *c);    /* its client has left, while it was watched */
    unsigned handles_open;
    bool must_run;    /* a connection was resumed or closed since the last MHD_run() */
    bool is_draining; /* no more holding */
    void (*stopped_cb)(void *arg);
    void *stopped_arg;
    struct exchange *exchanges;       /* all that are alive */
    struct running_key *running_keys; /* by scope */
    struct leftovers lingers;
    unsigned exchanges_count, suspended, held, connections, exports;
    unsigned parses; /* of bodies, in libuv's pool */
    uint64_t connections_refused;
    struct events *events;
    struct notices *notices; /* NULL: nothing may be posted */
    struct stream *streams;  /* all that are open */
    unsigned streams_count;
    uint64_t streams_dropped;                    /* for reading too slowly */
    uint64_t requests;                           /* answered so far */
    uint64_t answers[600];                       /* of those, by status */
    struct histogram durations[HTTP_ROUTES_MAX]; /* by exchange.route_number, in histogram_seconds */
    const struct route *asked[HTTP_ROUTES_MAX];  /* whose durations those are, once there are any */
    int64_t started_ns, stop_ns;                 /* monotonic */
    json_t *process, *disks;                     /* what host.h returned at host_ns */
    int64_t host_ns;
    struct kept_status {
        char *text; /* the figures of the funnel and of the host, as JSON */
        size_t size;
        uint64_t generation; /* funnel_generation() before the counts were read */
        int64_t at_ns;       /* that it was made; monotonic */
    } status;
    struct store_counts counts; /* of the store, as they were read last */
    bool has_counts, is_counting, is_count_late;
    char url[96];
};

#endif
