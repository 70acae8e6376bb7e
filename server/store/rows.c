#include "server/store/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/utf8.h"

static const char *const state_names[SUBMISSION_NSTATES] = {
    [SUBMISSION_QUEUED] = "queued",
    [SUBMISSION_RUNNING] = "running",
    [SUBMISSION_DONE] = "done",
    [SUBMISSION_CANCELLED] = "cancelled",
};

const char *
submission_state_name(enum submission_state state)
{
    return (unsigned)state < ARRAY_LEN(state_names) ? state_names[state] : "unknown";
}

int
submission_state_find(const char *name)
{
    for (int i = 0; i < SUBMISSION_NSTATES; i++) {
        if (strcmp(state_names[i], name) == 0)
            return i;
    }
    return -1;
}

void
task_row_release(struct task_row *r)
{
    free(r->name);
    free(r->entry_point);
    free(r->reference);
    free(r->spec);
    free(r->metadata);
    memset(r, 0, sizeof(*r));
}

void
submission_row_release(struct submission_row *r)
{
    free(r->client);
    free(r->request);
    free(r->stage);
    free(r->class_);
    free(r->verdict);
    memset(r, 0, sizeof(*r));
    r->reward = NAN;
}

void
carried_row_release(struct carried_row *r)
{
    free(ptr_take(&r->about));
    free(ptr_take(&r->bytes));
    r->size = 0;
}

void
group_row_release(struct group_row *r)
{
    free(r->request);
    memset(r, 0, sizeof(*r));
}

/* NULL stays NULL. rc remembers that one of several failed. */
static char *
dup_bytes(const char *bytes, size_t size, int *rc)
{
    char *copy = bytes ? malloc(size + 1) : NULL;

    if (bytes && !copy)
        *rc = ERR_NOMEM;
    if (copy)
        *(char *)mempcpy(copy, bytes, size) = '\0';
    return copy;
}

static char *
dup_text(const char *text, int *rc)
{
    return dup_bytes(text, text ? strlen(text) : 0, rc);
}

int
task_row_copy(const struct task_row *row, struct task_row *out)
{
    int rc = 0;

    *out = *row;
    out->name = dup_text(row->name, &rc);
    out->entry_point = dup_text(row->entry_point, &rc);
    out->reference = dup_bytes(row->reference, row->reference_size, &rc);
    out->spec = dup_text(row->spec, &rc);
    out->metadata = dup_text(row->metadata, &rc);
    return rc;
}

int
submission_row_copy(const struct submission_row *row, struct submission_row *out)
{
    int rc = 0;

    *out = *row;
    out->client = dup_text(row->client, &rc);
    out->request = dup_text(row->request, &rc);
    out->stage = dup_text(row->stage, &rc);
    out->class_ = dup_text(row->class_, &rc);
    out->verdict = dup_text(row->verdict, &rc);
    return rc;
}

int
group_row_copy(const struct group_row *row, struct group_row *out)
{
    int rc = 0;

    *out = *row;
    out->request = dup_text(row->request, &rc);
    return rc;
}

size_t
submission_row_weight(const struct submission_row *row)
{
    return sizeof(*row) + (row->request ? strlen(row->request) : 0) +
           (row->verdict ? strlen(row->verdict) : 0);
}

int
store_reward_bin(double reward)
{
    if (!isfinite(reward))
        return STORE_REWARD_NONE;
    if (reward < 0)
        return 0;
    /* 0.3 belongs to the bin that begins with it, however it was rounded. */
    return reward >= 1 ? STORE_REWARD_NBINS - 1 : 1 + (int)(reward * 10 + 1e-9);
}

void
store_scope(const char *client, char out[STORE_SCOPE_SIZE])
{
    size_t n = client ? strlen(client) : 0;

    if (n > STORE_SCOPE_SIZE - 2)
        n = utf8_cut(client, STORE_SCOPE_SIZE - 2); /* a database takes no half of a character */
    snprintf(out, STORE_SCOPE_SIZE, "%s%.*s", client ? "=" : "", (int)n, client ? client : "");
}

const double store_speedup_edges[STORE_SPEEDUP_NBINS - 1] = { 0.5, 0.8, 1, 1.2, 1.5, 2, 3, 5 };

int
store_speedup_bin(double speedup)
{
    int bin = 0;

    if (isnan(speedup))
        return -1;
    while (bin < STORE_SPEEDUP_NBINS - 1 && speedup > store_speedup_edges[bin])
        bin++;
    return bin;
}
