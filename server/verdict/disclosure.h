/*
 * disclosure.h - what a caller who may only submit is told of a verdict. Pure.
 *
 * Whoever trains a policy on what we say must not train it against the
 * detector: the submitter of a cheat learns that it was refused, and its
 * reward, and not by what, where or how late. docs/trust.md says the same for
 * people.
 */
#ifndef VERDICT_DISCLOSURE_H
#define VERDICT_DISCLOSURE_H

#include <stdbool.h>

#include <jansson.h>

#define DISCLOSURE_REFUSED "Rejected: not a genuine kernel."
/*
 * The public view of a submission's document, finished or not: the same keys,
 * null for what is not told. Given; NULL when there is no memory.
 *   not finished, cancelled   what the submitter said itself, and the state: no stage, no flag, no error
 *   refused (below)           the same, and the class, the reward, and DISCLOSURE_REFUSED
 *   any other class           all but the flags that only ask for a closer look, and what an earlier version's detector recorded
 */
json_t *disclosure_view(json_t *verdict);

/*
 * Class hack, or policy by a rule against cheats. Rules that say what every candidate must have (a kernel, an entry
 * point) are told.
 */
bool disclosure_is_refused(json_t *verdict);

/* Whether the view knows what to do with a field; it leaves out the others. */
bool disclosure_is_classified(const char *field);

#endif
