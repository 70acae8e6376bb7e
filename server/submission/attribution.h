/*
 * attribution.h - whether a failure may be a neighbour's doing. All but the last three note it in the attempt, after its first
 * failure. Loop thread only.
 */
#ifndef SUBMISSION_ATTRIBUTION_H
#define SUBMISSION_ATTRIBUTION_H

#include <stdbool.h>

#include "common/classes.h"

struct child_end;
struct attempt;
struct stage_report;
struct submission;

/* It failed because of how its process ended, with this class. */
void attribution_end(struct submission *s, enum verdict_class class_, const struct child_end *end);
/* It failed by this report, with this class. */
void attribution_report(struct submission *s, const struct stage_report *r, enum verdict_class class_);
/* A child of a CPU stage reported that it had no memory. */
void attribution_said_oom(struct attempt *j);
/* The reference failed by this report: that is not a failure of the candidate. */
void attribution_reference(struct attempt *j, const struct stage_report *r);
/* Whether it failed as one may whose process found no room for its files, and there is none. */
bool attribution_has_no_disk(const struct submission *s);
/* That it failed for. It is not judged again, and becomes `infra`. */
void attribution_excuse_disk(struct attempt *j);
/* Whether a neighbour may cause its class. */
bool attribution_may_be_theirs(const struct attempt *j);
/* True: the doubtful failure does not count, and it is judged once more, alone. */
bool attribution_promises_rerun(struct submission *s, enum verdict_class class_, int stage);
/* It is not judged again: a failure that needs a second finding to be attributed becomes `infra`. */
void attribution_excuse(struct submission *s);

#endif
