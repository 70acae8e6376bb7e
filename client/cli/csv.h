/*
 * csv.h - rows of an export as CSV (RFC 4180) whose cells a spreadsheet reads
 * as text. Candidates and clients chose many of the values, so none may be
 * read as a formula. Pure.
 */
#ifndef CLI_CSV_H
#define CLI_CSV_H

#include <jansson.h>

#include "common/buffer.h"

enum csv_table { CSV_SUBMISSIONS, CSV_VERDICTS, CSV_REWARDS, CSV_TABLES };
/* -1: unknown */
int csv_find(const char *name);

/* The line of titles. Appended. 0 or ERR_NOMEM. */
int csv_titles(struct buffer *out, enum csv_table table);
/*
 * The cells of a row as GET /v1/export sends it. Texts are quoted; one that a spreadsheet would read as a formula has
 * an apostrophe before it, and control characters and those that reverse text are written as \uXXXX. A null or missing
 * value is an empty cell. Appended. 0 or ERR_NOMEM.
 */
int csv_row(struct buffer *out, enum csv_table table, json_t *document);

#endif
