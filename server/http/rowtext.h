/*
 * rowtext.h - documents as rows of an export: JSON Lines of ASCII, since much
 * of them candidates and clients chose, and nothing in them may act. Pure.
 */
#ifndef HTTP_ROWTEXT_H
#define HTTP_ROWTEXT_H

#include <jansson.h>

#include "common/buffer.h"

enum rowtext_table { ROWTEXT_SUBMISSIONS, ROWTEXT_VERDICTS, ROWTEXT_REWARDS, ROWTEXT_TABLES };
/* -1: unknown */
int rowtext_find(const char *name);

/* One line of ASCII: every other character, and DEL, is escaped. Appended. 0 or ERR_NOMEM. */
int rowtext_json(struct buffer *out, json_t *row);

/* Of a document, what a row of this table has. Given; NULL: no memory. */
json_t *rowtext_pick(enum rowtext_table table, json_t *document);

#endif
