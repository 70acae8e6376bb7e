/*
 * calibration.c - what `verifier calibrate` found out about a GPU, kept for
 * the verdicts that follow. The figures are the caller's: they are shown and
 * decide nothing.
 */
#include "server/task/calibration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "server/store/store.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"

enum { RUNS_MAX = 64, GPU_MAX = 128 };

/* The document in the API: the stored one, with its id and time. */
static json_t *
document_of(const struct calibration_row *row)
{
    AUTO_JSON json_t *out = json_loads(row->document, 0, NULL);

    if (!json_is_object(out))
        return NULL;
    json_object_set_new(out, "id", json_string(row->id));
    json_object_set_new(out, "created", time_json(row->created_ms));
    return ptr_take(&out);
}

struct calibrations {
    json_t *newest; /* by the GPU's name */
};

struct calibrations *
calibrations_new(void)
{
    struct calibrations *c = calloc(1, sizeof(*c));

    if (c)
        c->newest = json_object();
    return c;
}

void
calibrations_free(struct calibrations *c)
{
    if (c)
        json_decref(c->newest);
    free(c);
}

void
calibrations_add_cb(void *arg, const struct calibration_row *row)
{
    const struct calibrations *c = arg;
    json_t *document = document_of(row);

    if (document)
        json_object_set_new(c->newest, row->gpu, document);
    else
        log_warn(NULL, "the calibration %s in the store cannot be read", row->id);
}

json_t *
calibration_brief(const struct calibrations *c, const char *gpu)
{
    static const char *const keys[] = { "id", "created", "bias", "spread" };
    json_t *known = gpu ? json_object_get(c->newest, gpu) : NULL;

    if (!known)
        return json_null();
    json_t *out = json_object();
    for (size_t i = 0; out && i < ARRAY_LEN(keys); i++)
        json_object_set(out, keys[i], json_object_get(known, keys[i]));
    return out;
}

json_t *
funnel_calibrations(struct funnel *f)
{
    json_t *items = json_array(), *known;
    const char *gpu;

    json_object_foreach(f->calibrations->newest, gpu, known) json_array_append(items, known);
    return json_pack("{s:o}", "items", items);
}

/* --- a new one --- */

static int
check_run(json_t *run, size_t i, struct json_fault *fault)
{
    char pointer[JSON_POINTER_SIZE];
    const char *name, *kind;
    double expected, figure;
    json_t *submission = NULL;
    const struct json_field fields[] = {
        { "name", JSON_WANT_STRING, &name, true, 1, 64 },
        { "kind", JSON_WANT_STRING, &kind, true, 1, 32 },
        { "submission", JSON_WANT_ANY, &submission, false, 0, 0 },
        { "outcome", JSON_WANT_STRING, &name, true, 1, 32 },
        { "expected", JSON_WANT_NUMBER, &expected, false, 0, 1e6 },
        { "speedup", JSON_WANT_NUMBER, &figure, false, 0, 1e6 },
        { "speedup_lo", JSON_WANT_NUMBER, &figure, false, 0, 1e6 },
        { "speedup_hi", JSON_WANT_NUMBER, &figure, false, 0, 1e6 },
        { "reference_ms", JSON_WANT_NUMBER, &figure, false, 0, 1e6 },
        { "candidate_ms", JSON_WANT_NUMBER, &figure, false, 0, 1e6 },
    };

    snprintf(pointer, sizeof(pointer), "/runs/%zu", i);
    return json_read(run, pointer, fields, ARRAY_LEN(fields), fault);
}

static int
check(json_t *body, const char **gpu, struct json_fault *fault)
{
    double bias, spread;
    json_t *runs = NULL, *run;
    size_t i;
    const struct json_field fields[] = {
        { "gpu", JSON_WANT_STRING, gpu, true, 1, GPU_MAX },
        { "bias", JSON_WANT_NUMBER, &bias, true, -1, 1e6 },
        { "spread", JSON_WANT_NUMBER, &spread, true, 0, 1e6 },
        { "runs", JSON_WANT_ARRAY, &runs, true, 0, 0 },
    };

    if (json_read(body, "", fields, ARRAY_LEN(fields), fault) != 0)
        return ERR_INPUT;
    if (json_array_size(runs) == 0 || json_array_size(runs) > RUNS_MAX)
        return json_refuse(fault, "/runs", "must hold 1 to %d runs", RUNS_MAX);
    json_array_foreach(runs, i, run)
    {
        if (check_run(run, i, fault) != 0)
            return ERR_INPUT;
    }
    return 0;
}

struct adding {
    struct funnel *f;
    struct calibration_row row;
    json_t *body; /* with the name in row */
    char *document;
    funnel_answer_cb *cb;
    void *arg;
};

static void
refuse(funnel_answer_cb *cb, void *arg, const char *why)
{
    struct funnel_answer refused = { .refusal = FUNNEL_UNAVAILABLE, .retry_after_s = 1 };

    json_refuse(&refused.fault, "", "%s", why);
    cb(arg, &refused);
}

static void
stored_cb(void *arg, int code, const struct error *err)
{
    struct adding *a = arg;
    struct funnel *f = a->f;
    struct funnel_answer answer = { .refusal = FUNNEL_OK, .is_new = true };

    if (code == 0) {
        calibrations_add_cb(f->calibrations, &a->row);
        snprintf(answer.id, sizeof(answer.id), "%s", a->row.id);
        a->cb(a->arg, &answer);
    } else {
        refuse(a->cb, a->arg, log_for_client(NULL, err));
    }
    json_decref(a->body);
    free(a->document);
    free(a);
    pending_end_write(f->pending);
}

void
funnel_calibrate(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer refused = { .refusal = FUNNEL_BAD };
    struct error err = { 0 };
    const char *gpu = NULL;

    if (check(body, &gpu, &refused.fault) != 0) {
        cb(arg, &refused);
        return;
    }
    if (pending_is_draining(f->pending)) {
        refuse(cb, arg, "the daemon is draining");
        return;
    }
    struct adding *a = calloc(1, sizeof(*a));
    char *document = a ? json_dumps(body, JSON_COMPACT) : NULL;
    if (!document) {
        free(a);
        refuse(cb, arg, "no memory for the calibration");
        return;
    }
    *a = (struct adding){ .f = f, .cb = cb, .arg = arg, .body = json_incref(body), .document = document };
    a->row = (struct calibration_row){ .created_ms = clock_wall_ms(), .gpu = gpu, .document = document };
    id_new(a->row.id);
    pending_begin_write(f->pending);
    if (store_add_calibration(f->store, &a->row, stored_cb, a, &err) != 0)
        stored_cb(a, err.code, &err);
}
