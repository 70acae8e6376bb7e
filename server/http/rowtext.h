/*
 * rowtext.h - documents as rows of an export: JSON Lines, or CSV (RFC 4180)
 * whose cells a spreadsheet takes for text. Much of them candidates and
 * clients chose, so nothing in them may act. Pure.
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

/* The line of titles. Appended. 0 or ERR_NOMEM. */
int rowtext_csv_titles(struct buffer *out, enum rowtext_table table);
/*
 * The cells of a document (a submission's, as HTTP shows it). Texts are quoted; one that a spreadsheet would take for
 * a formula has an apostrophe before it, and control characters and those that reverse text stand as \uXXXX. What is
 * null or missing is an empty cell. Appended. 0 or ERR_NOMEM.
 */
int rowtext_csv(struct buffer *out, enum rowtext_table table, json_t *document);

/* Of a document, what a row of this table has: the same names for JSON. Given; NULL: no memory. */
json_t *rowtext_pick(enum rowtext_table table, json_t *document);

#endif
