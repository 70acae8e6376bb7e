/*
 * failure.h - the class and text of a candidate's failure. All functions but the first and the last are for a failure
 * in the present stage. Loop thread only.
 */
#ifndef SUBMISSION_FAILURE_H
#define SUBMISSION_FAILURE_H

#include <stddef.h>

#include <jansson.h>

#include "common/classes.h"

struct child_end;
struct attempt;
struct stage_report;
struct submission;

void crash_text(const struct child_end *end, char *out, size_t size);
/* Now it is known how the process ended; the referee could only say that it did. */
void failure_refine(struct submission *s, const struct child_end *end);
/* A child ended without a result: the candidate's doing. Gives the class. */
enum verdict_class failure_by_end(struct submission *s, const struct child_end *end);
/* error: {"type","text","line"} or NULL, borrowed; otherwise: its text where it has none. */
void failure_by_error(struct attempt *j, enum verdict_class class_, json_t *error, const char *otherwise);
/* Class form: the policy requires a plan, and none could be made, for the reason in the attempt's `untraced`. */
void failure_without_plan(struct attempt *j);
/* By a report of outcome REPORT_FAIL. Gives the class. */
enum verdict_class failure_by_report(struct submission *s, const struct stage_report *r);
/* Only the first failure counts, so only its rule does. rule: NULL where none of ours found it. */
void failure_note_rule(struct attempt *j, const char *rule);

#endif
