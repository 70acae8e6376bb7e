/*
 * cause.h - why a candidate failed, in one line: where it is, and what was raised. Pure.
 *
 * The line goes to people and into the next prompt of the model that wrote the candidate. Sentences of ours, and
 * messages of Python, torch and Triton that are known here, stand as they are; every other text that was raised may be
 * the candidate's own words and stands in quotes. Names stand bare where they are plain identifiers.
 */
#ifndef VERDICT_CAUSE_H
#define VERDICT_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/buffer.h"
#include "common/classes.h"

struct cause {
    enum stage stage;
    enum verdict_class class_;
    json_t *error;         /* {"type", "text", "line"} or NULL; borrowed */
    const char *otherwise; /* where the error has no text */
};

/* Adds "STAGE: line N, kernel NAME: CAUSE". 0 or ERR_NOMEM. */
int cause_add(const struct cause *c, struct buffer *out);

/* Whether the text is a message that is known here, with nothing in it but names and numbers. */
bool cause_is_known(const char *text);
/* At most 64 letters, digits and underscores of ASCII, not beginning with a digit. */
bool cause_is_name(const char *text, size_t size);

#endif
