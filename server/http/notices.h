/*
 * notices.h - what the daemon posts by itself: that a group has ended, to the address that its maker gave. Only to hosts
 * that the operator named (notify_hosts), and signed with the key of notify_key. Made by the loop's thread, sent by one of
 * its own.
 */
#ifndef HTTP_NOTICES_H
#define HTTP_NOTICES_H

#include <stdint.h>

#include "common/error.h"

#define NOTICE_URL_MAX 2000
#define NOTICE_WAITING_MAX 1000 /* notices that are not delivered; more are dropped */

struct notices;

/*
 * hosts: "HOST HOST:PORT ...", copied; "" is none: *out is NULL, and nothing may be posted. key_file: its content,
 * without blanks at its end, is the key. 0, ERR_INPUT (a key that is missing or short), ERR_SYS or ERR_NOMEM.
 */
int notices_new(const char *hosts, const char *key_file, struct notices **out, struct error *err);
/* Notices that were not delivered are dropped, and a log line gives their number. NULL is fine. */
void notices_free(struct notices *n);

/* Whether that file has a key: 0, ERR_INPUT or ERR_SYS. */
int notices_check_key(const char *key_file, struct error *err);

/* Whether it may be posted there. 0, or ERR_INPUT, with words that go after "/notify_url ". */
int notices_check(const struct notices *n, const char *url, struct error *err);
/* Post that this group has ended; both copied. */
void notices_group_ended(struct notices *n, const char *group, const char *url);

struct notices_counts {
    uint64_t delivered, failed, waiting; /* failed: all tries were in vain, or there were too many */
};
void notices_count(struct notices *n, struct notices_counts *out);

#endif
