#include "client/cli/replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/json.h"

/* --- which fields may differ --- */

enum kind {
    SAME,    /* it must be the same */
    FREE,    /* it may differ */
    MACHINE, /* it must be the same where the machines are alike */
    CLOSE,   /* as MACHINE, but for the last digits of numbers */
    SPEED,   /* as MACHINE; both intervals must have something in common */
    FLAGS,   /* a list without order; "replay" only marks a replay */
};

#define OF_IT "it belongs to the submission"
#define TIME "it is a time"
#define OF_MACHINE "it depends on GPU, driver, torch and triton"
#define BY_SPEED "it is judged by the interval of the speed-up"

/* A * stands for one part of the path; the longest row that fits decides; a row holds for all that is below it. */
static const struct {
    const char *path;
    enum kind kind;
    const char *why;
} rules[] = {
    { "id", FREE, OF_IT },
    { "group", FREE, OF_IT },
    { "group_index", FREE, OF_IT },
    { "task_name", FREE, "another daemon may call the task otherwise" },
    { "client", FREE, OF_IT },
    { "priority", FREE, OF_IT },
    { "metadata", FREE, OF_IT },
    { "cache", FREE, OF_IT },
    { "cached_from", FREE, OF_IT },
    { "attempts", FREE, OF_IT },
    { "rerun", FREE, "it tells of neighbours" },
    { "sanitize", FREE, "races show at some calls only" },
    { "created", FREE, TIME },
    { "finished", FREE, TIME },
    { "env", FREE, "it names the machine" },
    { "flags", FLAGS, OF_MACHINE },
    { "stage", MACHINE, OF_MACHINE },
    { "passed_stage", MACHINE, OF_MACHINE },
    { "generality", MACHINE, OF_MACHINE },
    { "reward", SPEED, BY_SPEED },
    { "reward_parts", SPEED, BY_SPEED },
    { "stages", MACHINE, OF_MACHINE },
    { "stages/*/wait_ms", FREE, TIME },
    { "stages/*/run_ms", FREE, TIME },
    { "components/compiled", MACHINE, OF_MACHINE },
    { "components/correct", MACHINE, OF_MACHINE },
    { "components/cases_passed", MACHINE, OF_MACHINE },
    { "components/generality", MACHINE, OF_MACHINE },
    { "components/timed", MACHINE, OF_MACHINE },
    { "components/speedup", SPEED, BY_SPEED },
    { "components/speedup_lo", FREE, BY_SPEED },
    { "components/speedup_hi", FREE, BY_SPEED },
    { "components/speedup_compile", FREE, BY_SPEED },
    { "components/coverage", FREE, "a share of times" },
    { "components/sol", FREE, "it comes from times" },
    { "components/rank", FREE, "a single submission has none" },
    { "components/peak_mem_ratio", FREE, OF_MACHINE },
    { "correctness", CLOSE, OF_MACHINE },
    { "correctness/peak_bytes", FREE, OF_MACHINE },
    { "correctness/reference_peak_bytes", FREE, OF_MACHINE },
    { "timing", FREE, "times, and the clocks that they were taken at" },
    { "timing/outcome", MACHINE, OF_MACHINE },
    { "timing/estimator", SAME, NULL },
    { "timing/method", MACHINE, OF_MACHINE },
    { "evidence", FREE, "earlier versions alone have it" },
    { "kernels", MACHINE, OF_MACHINE },
    { "kernels/*/cubin_bytes", FREE, "the machine code names the file that it came from" },
    { "kernels/*/hash", FREE, "the machine code names the file that it came from" },
    { "error", MACHINE, OF_MACHINE },
    { "error/text", FREE, "it may name addresses and paths" },
    { "feedback/text", FREE, "it tells times, and may name addresses and paths" },
};

/* How many parts of path the pattern takes; 0: it does not fit. */
static int
fit(const char *pattern, const char *path)
{
    int parts = 0;

    for (;; pattern++, path++) {
        size_t size = strcspn(pattern, "/"), n = strcspn(path, "/");
        bool is_any = size == 1 && *pattern == '*';
        if (!is_any && (size != n || strncmp(pattern, path, n) != 0))
            return 0;
        parts++;
        pattern += size;
        path += n;
        if (!*pattern)
            return parts;
        if (!*path)
            return 0;
    }
}

static enum kind
kind_of(const char *path, const char **why)
{
    enum kind kind = SAME;
    int longest = 0;

    *why = "it must be the same";
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        int parts = fit(rules[i].path, path);
        if (parts <= longest)
            continue;
        longest = parts;
        kind = rules[i].kind;
        if (rules[i].why)
            *why = rules[i].why;
    }
    return kind;
}

/* --- comparing --- */

struct comparison {
    json_t *bundle, *here; /* the whole documents */
    json_t *differ, *may_differ;
    bool is_alike; /* the machines */
    int same;
};

static json_t *
text_at(json_t *document, const char *a, const char *b)
{
    json_t *value = json_object_get(document, a);
    return b ? json_object_get(value, b) : value;
}

static bool
are_alike(json_t *a, json_t *b)
{
    static const char *const names[] = { "gpu", "driver", "torch", "triton" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *x = text_at(a, "env", names[i]), *y = text_at(b, "env", names[i]);
        if ((x && !json_is_null(x)) != (y && !json_is_null(y)) || (json_is_string(x) && !json_equal(x, y)))
            return false;
    }
    return true;
}

static double
component(json_t *document, const char *name)
{
    return number_or_nan(json_object_get(document, "components"), name);
}

static bool
is_timed(json_t *document)
{
    return component(document, "timed") == 1 && isfinite(component(document, "speedup"));
}

/* Both have an interval, and what each allows is somewhere the same. */
static bool
do_speeds_agree(const struct comparison *c)
{
    double lo_a = component(c->bundle, "speedup_lo"), hi_a = component(c->bundle, "speedup_hi");
    double lo_b = component(c->here, "speedup_lo"), hi_b = component(c->here, "speedup_hi");
    return lo_a <= hi_b && lo_b <= hi_a;
}

static bool
are_close(json_t *a, json_t *b)
{
    double x = json_number_value(a), y = json_number_value(b);

    if (!json_is_number(a) || !json_is_number(b))
        return json_equal(a, b);
    return fabs(x - y) <= 1e-6 * fmax(fabs(x), fabs(y));
}

static bool
has_word(json_t *list, const char *word)
{
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), word) == 0)
            return true;
    }
    return false;
}

static bool
is_part_of(json_t *list, json_t *other)
{
    json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        const char *word = json_string_value(item);
        if (word && strcmp(word, "replay") != 0 && !has_word(other, word))
            return false;
    }
    return true;
}

static void
note(struct comparison *c, bool may_differ, const char *path, json_t *a, json_t *b, const char *why)
{
    json_array_append_new(may_differ ? c->may_differ : c->differ,
                          json_pack("{s:s, s:o, s:o, s:s}", "field", path, "bundle",
                                    a ? json_incref(a) : json_null(), "here",
                                    b ? json_incref(b) : json_null(), "why", why));
}

static void
compare_leaf(struct comparison *c, const char *path, json_t *a, json_t *b)
{
    const char *why;
    enum kind kind = kind_of(path, &why);
    bool is_same = a && b ? json_equal(a, b) : (!a || json_is_null(a)) && (!b || json_is_null(b));
    bool may_differ = kind == FREE || (kind != SAME && !c->is_alike);

    if (kind == FLAGS)
        is_same = is_part_of(a, b) && is_part_of(b, a);
    if (!is_same && a && b && (kind == CLOSE || kind == SAME || kind == SPEED))
        is_same = are_close(a, b);
    if (is_same) {
        c->same++;
        return;
    }
    if (kind == SPEED && is_timed(c->bundle) && is_timed(c->here))
        may_differ = may_differ || do_speeds_agree(c);
    note(c, may_differ, path, a, b, why);
}

static void compare(struct comparison *c, const char *path, json_t *a, json_t *b);

static void
compare_member(struct comparison *c, const char *path, const char *key, json_t *a, json_t *b)
{
    AUTO_BUFFER struct buffer below = BUFFER_INIT;

    if (buffer_printf(&below, "%s%s%s", path, *path ? "/" : "", key) == 0)
        compare(c, below.data, a, b);
}

static void
compare_objects(struct comparison *c, const char *path, json_t *a, json_t *b)
{
    const char *key;
    json_t *value;

    json_object_foreach(a, key, value) compare_member(c, path, key, value, json_object_get(b, key));
    json_object_foreach(b, key, value)
    {
        if (!json_object_get(a, key))
            compare_member(c, path, key, NULL, value);
    }
}

static void
compare(struct comparison *c, const char *path, json_t *a, json_t *b)
{
    const char *why;
    size_t n = json_array_size(a) > json_array_size(b) ? json_array_size(a) : json_array_size(b);

    if (json_is_object(a) && json_is_object(b)) {
        compare_objects(c, path, a, b);
    } else if (json_is_array(a) && json_is_array(b) && kind_of(path, &why) != FLAGS && n > 0) {
        for (size_t i = 0; i < n; i++) {
            char key[24];
            snprintf(key, sizeof(key), "%zu", i);
            compare_member(c, path, key, json_array_get(a, i), json_array_get(b, i));
        }
    } else {
        compare_leaf(c, path, a, b);
    }
}

json_t *
replay_compare(json_t *bundle, json_t *here)
{
    struct comparison c = {
        .bundle = bundle, .here = here, .differ = json_array(), .may_differ = json_array()
    };

    c.is_alike = are_alike(bundle, here);
    compare_objects(&c, "", bundle, here);
    bool is_same = json_array_size(c.differ) == 0;
    return json_pack("{s:b, s:i, s:s, s:o, s:o}", "same", (int)is_same, "fields", c.same, "machines",
                     c.is_alike ? "alike" : "differ", "differ", c.differ, "may_differ", c.may_differ);
}
