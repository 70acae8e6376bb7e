#include "client/trainer/enlarge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/daemon.h"
#include "common/auto.h"

enum { EXPONENT_MAX = 24, TRIES_MAX = 12 };

struct search {
    struct http_client *daemon;
    struct helper *helper;
    const char *run;
    const struct entry *entry;
};

/* The reference's time in ms as its own candidate; 0: too short to be told; NAN: it was not timed. */
static int
time_reference(const struct search *s, const char *source, const char *task_id, double *ms, struct error *err)
{
    char group[DAEMON_ID_SIZE];
    AUTO_JSON json_t *done = NULL;
    AUTO_JSON json_t *body =
        json_pack("{s:s, s:[{s:s}], s:s, s:s, s:s}", "task", task_id, "candidates", "candidate", source,
                  "policy", "kernelbench", "client", "trainer", "entry_point", s->entry->entry_point);

    *ms = NAN;
    int rc = daemon_add_group(s->daemon, s->run, body, group, err);
    rc = rc == 0 ? daemon_wait_group(s->daemon, group, &done, err) : rc;
    if (rc != 0)
        return rc;
    json_t *timing = json_object_get(json_array_get(json_object_get(done, "items"), 0), "timing");
    json_t *found = json_object_get(timing, "reference_ms");
    const char *outcome = json_string_value(json_object_get(timing, "outcome"));
    if (json_is_number(found))
        *ms = json_number_value(found);
    else if (outcome && strcmp(outcome, "too_small") == 0)
        *ms = 0;
    return 0;
}

/* The reference with its sizes times 2^exponent; NULL: it has none to change. *out is given. */
static int
grow(const struct search *s, const char *how, int exponent, char **out, struct error *err)
{
    AUTO_JSON json_t *reply = NULL;
    AUTO_JSON json_t *asked = json_pack("{s:s, s:s, s:I}", "source", s->entry->source, "how", how, "factor",
                                        (json_int_t)1 << exponent);
    int rc = helper_check(s->helper, asked, &reply, err);

    *out = NULL;
    if (rc == ERR_PROTOCOL)
        return 0;
    const char *source = json_string_value(json_object_get(reply, "source"));
    if (rc == 0 && source && !(*out = strdup(source)))
        rc = error_set(err, ERR_NOMEM, "out of memory");
    return rc;
}

/* How long one size runs: NAN where the daemon refuses it, which is taken for too large. */
static int
try_size(const struct search *s, const char *source, double *ms, struct error *err)
{
    AUTO_JSON json_t *task = NULL;
    const struct entry *e = s->entry;
    struct task t = { .name = (char *)(uintptr_t)e->name,
                      .reference = (char *)(uintptr_t)source,
                      .entry_point = (char *)(uintptr_t)e->entry_point,
                      .level = e->level };
    int rc = daemon_register(s->daemon, &t, &task, err);

    *ms = NAN;
    if (rc == ERR_INPUT)
        return 0;
    const char *id = json_string_value(json_object_get(task, "id"));
    return rc != 0 ? rc : time_reference(s, source, id ? id : "", ms, err);
}

/* Look for the smallest power of two that brings it into the window; *found: {"how", "factor", "source", "ms"} or NULL. */
static int
search(const struct search *s, const char *how, double own_ms, json_t **found, struct error *err)
{
    int low = 0, high = EXPONENT_MAX + 1; /* too short at low, too long or refused at high */
    double ms = own_ms;

    *found = NULL;
    for (int tries = 0; tries < TRIES_MAX && high - low > 1; tries++) {
        AUTO_FREE char *source = NULL;
        double steps = ms > 0 ? log2(2 * ENLARGE_MIN_MS / ms) : 8; /* as if time grew with size */
        int next = high <= EXPONENT_MAX ? (low + high) / 2
                                        : low + (steps < 1   ? 1
                                                 : steps > 8 ? 8
                                                             : (int)steps);
        next = next >= high ? high - 1 : next;
        int rc = grow(s, how, next, &source, err);
        if (rc != 0 || !source)
            return rc;
        double seen = NAN;
        rc = try_size(s, source, &seen, err);
        if (rc != 0)
            return rc;
        if (seen >= ENLARGE_MIN_MS && seen <= ENLARGE_MAX_MS) {
            *found = json_pack("{s:s, s:I, s:s, s:f}", "how", how, "factor", (json_int_t)1 << next, "source",
                               source, "ms", seen);
            return 0;
        }
        if (seen < ENLARGE_MIN_MS)
            low = next;
        else
            high = next;
        ms = seen < ENLARGE_MIN_MS ? seen : ms;
    }
    return 0;
}

int
enlarge(struct http_client *daemon, struct helper *helper, const char *run, const struct entry *e,
        const char *task_id, json_t *record, struct error *err)
{
    const struct search s = { daemon, helper, run, e };
    json_t *found = NULL;
    double ms;
    int rc = time_reference(&s, e->source, task_id, &ms, err);

    if (rc == 0 && ms >= ENLARGE_MIN_MS && ms <= ENLARGE_MAX_MS)
        return json_object_set_new(record, "ms", json_real(ms));
    if (rc == 0 && ms < ENLARGE_MIN_MS)
        rc = search(&s, "batch", ms, &found, err);
    if (rc == 0 && !found && ms < ENLARGE_MIN_MS)
        rc = search(&s, "all", ms, &found, err);
    if (found) {
        json_object_set(record, "ms", json_object_get(found, "ms"));
        json_object_set_new(record, "enlarged", found);
    }
    return rc;
}
