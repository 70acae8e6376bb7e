/* connection.h - one socket and its deadline. Private to http/. Loop thread. */
#ifndef HTTP_CONNECTION_H
#define HTTP_CONNECTION_H

#include "server/http/engine.h"
#include "server/http/problem.h"

enum deadline {
    DEADLINE_HEADER, /* of the first request */
    DEADLINE_BODY,
    DEADLINE_HOLD,   /* a long poll */
    DEADLINE_WORK,   /* an answer of the funnel */
    DEADLINE_ANSWER, /* until the client took it; of a stream: took what there is */
    DEADLINE_BEAT,   /* a stream that has nothing to say */
    DEADLINE_IDLE,   /* until the end of the next request's header */
};

/* One socket. Freed when MHD has closed it and both handles are closed. */
struct connection {
    struct http *http;
    int fd; /* MHD's */
    uv_timer_t timer;
    uv_poll_t gone; /* watches for the client's leaving while MHD does not */
    unsigned handles_open;
    enum deadline deadline;
    bool is_counted;              /* false: it was refused */
    bool must_linger;             /* take what the client still sends, so that it can read the answer */
    bool is_dead;                 /* shut down by us */
    struct exchange *exchange;    /* the request that is under way, or NULL */
    const char *uri, *request_id; /* of that, views */
};

void connection_notify_cb(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code);
struct connection *connection_of(struct MHD_Connection *mhd);
/* One deadline at a time; ms 0 is the next turn of the loop. */
void connection_arm(struct connection *c, enum deadline deadline, int64_t ms);
void connection_disarm(struct connection *c);
void connection_watch(struct connection *c);
void connection_unwatch(struct connection *c);
/* End it; MHD notices. */
void connection_shutdown(struct connection *c);
/* Answer without MHD, which takes no answer in the middle of a body; then end it. */
void connection_refuse(struct connection *c, enum problem problem, const char *detail);

#endif
