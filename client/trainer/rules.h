/* rules.h - the policy that a task's answers are judged under. */
#ifndef TRAINER_RULES_H
#define TRAINER_RULES_H

#include <jansson.h>

#include "common/error.h"

/*
 * The "policy" of a request. text: as in --policy; if it names none, or is NULL, strict below level 2 and hybrid from
 * there on. parts: keys that override it; NULL: none; borrowed. *out: given. Errors are policy_parse()'s.
 */
int rules_of(const char *text, int level, json_t *parts, json_t **out, struct error *err);

#endif
