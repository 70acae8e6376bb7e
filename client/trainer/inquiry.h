/*
 * inquiry.h - what the daemon says of a row: does its reference run, is it one to learn from, is its own answer right. Journalled by
 * the row's content, so that nothing is asked twice, in whatever order the answers came and whenever the trainer was killed.
 */
#ifndef TRAINER_INQUIRY_H
#define TRAINER_INQUIRY_H

#include <jansson.h>

#include "client/trainer/entry.h"
#include "common/http_client.h"

struct inquiry;

/* options and helper are borrowed for as long as it lives. *out: free with inquiry_free(). Errors are journal_open()'s. */
int inquiry_new(const struct prepare_options *options, struct helper *helper, const char *journal,
                struct inquiry **out, struct error *err);
void inquiry_free(struct inquiry *q);

/* What was said of this row before inquiry_new(): given, or NULL. One thread at a time. ERR_SYS, ERR_INPUT: the journal. */
int inquiry_before(struct inquiry *q, const struct entry *e, json_t **out, struct error *err);
/*
 * Ask, and journal: *out is {"key", "reason", "detail", "answer", "operations", "ms", "enlarged"}, given. Any thread, each with a
 * client of its own. ERR_UNAVAILABLE, ERR_TIMEOUT: the daemon is gone, or refuses the token; ERR_SYS: the disk; ERR_PROTOCOL.
 */
int inquiry_ask(struct inquiry *q, struct http_client *daemon, const struct entry *e, json_t **out,
                struct error *err);

#endif
