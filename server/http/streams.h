/* streams.h - answers that are streams of events. Private to http/. Loop thread. */
#ifndef HTTP_STREAMS_H
#define HTTP_STREAMS_H

#include "server/http/exchange.h"

struct stream;
/* Something to say even if nothing happened; or that it is time to end. */
void stream_beat(struct stream *s);
/* Send the remaining events, then the reason of the end (a constant), and end. */
void stream_end(struct stream *s, const char *why);
/* The client has left. */
void stream_gone(struct stream *s);
/* The client reads too slowly: end the connection. */
void stream_drop(struct stream *s);
/* For funnel_follow(); arg is the http. */
void streams_event_cb(void *arg, const struct funnel_event *event);

#endif
