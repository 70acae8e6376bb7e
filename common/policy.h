/* policy.h - the rules a submission is judged by, read from a request and shown in its verdict. Pure. */
#ifndef COMMON_POLICY_H
#define COMMON_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/json.h"

#define POLICY_VERSION 1
#define POLICY_NAMES "strict, hybrid, kernelbench and classic"

/* Each part is one key that can be turned off or down: policy_keys() has what each of them does. */
struct policy {
    char name[16];
    bool staged, skip_timing_on_failure, tiny_first;
    char precision[8], foreign[12], shapes[8];
    bool require_plan, credit_untraced, sanitize;
    struct {
        int64_t count;
        bool value, shape, dtype;
    } variations;
    struct {
        int64_t warmup, trials;
        bool fixed, events, cold;
        char estimator[8];
        bool compile_baseline;
    } timing;
};

enum policy_type { POLICY_BOOL, POLICY_INT, POLICY_WORD };

/* One row for each key: reading, printing and the documents go by it. */
struct policy_key {
    const char *section, *name; /* section "": the policy itself */
    enum policy_type type;
    size_t at;           /* of its member in struct policy */
    int64_t least, most; /* of POLICY_INT */
    const char
        *words; /* of POLICY_WORD, between commas; the first one stands unless a policy says otherwise */
    bool is_told_if_asked; /* it stands in a verdict only where it differs from what all policies have */
    const char *help;
};
const struct policy_key *policy_keys(size_t *n);

/* One of the policies, in their order; NULL behind the last. */
const struct policy *policy_at(size_t i);
/* By name: strict, hybrid, kernelbench or classic. 0 or ERR_NOTFOUND. */
int policy_find(const char *name, struct policy *out);
/*
 * value: a name; an object with a "name" and keys that change it; the same as NAME,KEY=VALUE,... with keys as
 * timing.trials, where NAME may be left out; NULL: strict. 0 or ERR_INPUT.
 */
int policy_read(json_t *value, const char *base, struct policy *out, struct json_fault *fault);
/*
 * A policy in an option or a configuration: such a text, or the path of a JSON file. *out: a name or an object,
 * checked. Given. ERR_INPUT; ERR_SYS: there is no policy of that name, and no file that can be opened.
 */
int policy_parse(const char *text, json_t **out, struct error *err);
/* Given: every part with its value, and the name and version. policy_read() takes it back. */
json_t *policy_json(const struct policy *p);
/* Its name as it is shown: "strict*" where a part lets through what the policy of that name does not. */
#define POLICY_SHOWN_SIZE 20
void policy_shown(const struct policy *p, char out[POLICY_SHOWN_SIZE]);
/* Given: the same without name and version, for "policy_on". */
json_t *policy_parts_json(const struct policy *p);
/* The value of one key. Given. */
json_t *policy_value(const struct policy *p, const struct policy_key *key);

#endif
