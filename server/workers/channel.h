/*
 * channel.h - one end of a SOCK_SEQPACKET pair on the loop: checked packets of
 * JSON with descriptors (proto/worker.md). Loop thread only.
 */
#ifndef WORKERS_CHANNEL_H
#define WORKERS_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/error.h"
#include "proto/worker.h"

struct channel;

/* One packet that came in. */
struct message {
    json_t *body;                      /* an object */
    const char *names[WORKER_FDS_MAX]; /* views into body */
    int fds[WORKER_FDS_MAX];           /* -1 once taken */
    size_t n_fds;
};

/* The descriptor of that name, the caller's from now on; -1: none came. */
int message_take_fd(struct message *m, const char *name);
/* A string of the body, or NULL when it is absent or no string. View. */
const char *message_text(const struct message *m, const char *key);

/* A descriptor that goes out, by the name it has in "fds". */
struct channel_fd {
    const char *name;
    int fd; /* taken */
};

/* m is borrowed; descriptors not taken from it are closed afterwards. May call channel_free(). */
typedef void channel_message_cb(void *arg, struct message *m);
/* The other end is gone, or broke the protocol (why->code ERR_PROTOCOL). Once; may call channel_free(). */
typedef void channel_gone_cb(void *arg, const struct error *why);

/*
 * Watch fd (taken, also on failure; made non-blocking). 0, ERR_SYS or ERR_NOMEM.
 * out is given: channel_free().
 */
int channel_new(uv_loop_t *loop, int fd, channel_message_cb *on_message, channel_gone_cb *on_gone, void *arg,
                struct channel **out, struct error *err);
/* Hand on now what has come in and was not read yet: of a peer that is not dead, as much as a socket holds. May free c. */
void channel_drain(struct channel *c);
/* Closes the descriptor at once; no callback runs any more. NULL is fine. */
void channel_free(struct channel *c);

/*
 * Send or queue one packet. body and descriptors are taken. 0, ERR_INPUT (too
 * large), ERR_FULL (the peer does not read), ERR_SYS (the peer is gone) or ERR_NOMEM.
 */
int channel_send(struct channel *c, json_t *body, const struct channel_fd *fds, size_t n_fds,
                 struct error *err);

/* A line of the debug log: a message to or from a worker, without texts of candidates, seeds or figures. */
void channel_log(const char *worker, const char *direction, json_t *body);

/* --- descriptors other than channels --- */

/* A close-on-exec SOCK_SEQPACKET pair; both ends the caller's. 0 or ERR_SYS. */
int channel_pair(int fds[2], struct error *err);
/* A sealed memfd with these bytes, or -1 with err filled. */
int memfd_make(const char *name, const void *bytes, size_t size, struct error *err);
/* The bytes of a memfd that a worker sent, at most limit of them. 0, ERR_PROTOCOL, ERR_SYS or ERR_NOMEM. */
int memfd_read(int fd, size_t limit, struct buffer *out, struct error *err);

#endif
