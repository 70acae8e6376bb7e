/*
 * text.h - printing what came from elsewhere. Candidates choose much of it, so
 * control characters never reach the terminal.
 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "common/buffer.h"
#include "common/json.h"

/* Print text; control characters but newline and tab, and invalid UTF-8, become '?'. */
void text_print(FILE *to, const char *text);
/* Bytes that may hold NULs: as they are into a file or pipe, made safe on a terminal. False: could not be written. */
bool text_dump(FILE *to, const char *bytes, size_t size);

/* Append any JSON value as people read it: strings bare, null as "-", numbers short, the rest as JSON. */
void text_value(struct buffer *out, const json_t *value);
/* Append the number under a key with `decimals` decimals, or "-". */
void text_number(struct buffer *out, const json_t *object, const char *key, int decimals);

/* Print a document for programs, and the same on one line; on a terminal all that is not ASCII is escaped. */
void text_json(const json_t *document);
void text_json_line(const json_t *document);

#endif
