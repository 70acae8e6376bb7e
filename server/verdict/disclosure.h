/*
 * disclosure.h - the part of a verdict for a caller that may only submit. Pure.
 *
 * A client that trains a policy on our responses must not train it against the
 * detector: the submitter of a cheat learns that it was refused, and its
 * reward, but not by which check, where or how late. docs/trust.md explains
 * this for users.
 */
#ifndef VERDICT_DISCLOSURE_H
#define VERDICT_DISCLOSURE_H

#include <stdbool.h>

#include <jansson.h>

#define DISCLOSURE_REFUSED "Rejected: not a genuine kernel."
/*
 * The public view of a submission's document, finished or not: the same keys,
 * null for what is not disclosed. Given; NULL when there is no memory.
 *   not finished, cancelled   the submitter's own input, and the state: no stage, no flag, no error
 *   refused (below)           the same, and the class, the reward, and DISCLOSURE_REFUSED
 *   any other class           all but the flags that only ask for a closer look, and the record of an earlier detector
 */
json_t *disclosure_view(json_t *verdict);

/*
 * Class hack, or policy by a rule against cheats. Rules on what every candidate must have (a kernel, an entry point)
 * are disclosed.
 */
bool disclosure_is_refused(json_t *verdict);

/* Whether the view knows what to do with a field; it leaves out the others. */
bool disclosure_is_classified(const char *field);

#endif
