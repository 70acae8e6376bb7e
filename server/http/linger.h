/*
 * linger.h - sockets that are done but for what their client still sends.
 *
 * A socket closed with unread bytes in it sends a reset, and a client that is
 * still busy sending its body loses the answer that was on its way. Such a
 * socket is read empty for a short while first. Loop thread only.
 */
#ifndef HTTP_LINGER_H
#define HTTP_LINGER_H

#include <uv.h>

struct leftover;

struct leftovers {
    uv_loop_t *loop;
    struct leftover *list;
    unsigned count;
};

/* fd is borrowed: it is duplicated. Does nothing when there are too many already, or no memory. */
void linger_begin(struct leftovers *all, int fd);
/* Close all; count is 0 some turns of the loop later. */
void linger_end_all(struct leftovers *all);

#endif
