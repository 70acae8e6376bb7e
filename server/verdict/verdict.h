/* verdict.h - the verdict as a document. Any thread that has the submission to itself. */
#ifndef VERDICT_VERDICT_H
#define VERDICT_VERDICT_H

#include <stdbool.h>

#include <jansson.h>

#include "common/classes.h"

struct attempt;
struct submission;

json_t *verdict_json(const struct submission *s);             /* given; s has an attempt */
const char *verdict_stage(const struct attempt *j);           /* the last one reached, or NULL */
enum verdict_class verdict_class_of(const struct attempt *j); /* CLASS_OK where nothing failed */

/* Of class ok, and it came as far as being held against the reference. */
bool verdict_is_correct(json_t *verdict);

#endif
