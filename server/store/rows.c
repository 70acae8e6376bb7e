#include "server/store/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

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
group_row_release(struct group_row *r)
{
    free(r->request);
    memset(r, 0, sizeof(*r));
}

/* Duplicate one text; NULL stays NULL. code remembers that one of several failed. */
static char *
dup_text(const char *text, int *rc)
{
    char *copy;

    if (!text)
        return NULL;
    copy = strdup(text);
    if (!copy)
        *rc = ERR_NOMEM;
    return copy;
}

static char *
dup_bytes(const char *bytes, size_t size, int *rc)
{
    char *copy;

    if (!bytes)
        return NULL;
    copy = malloc(size + 1);
    if (!copy) {
        *rc = ERR_NOMEM;
        return NULL;
    }
    memcpy(copy, bytes, size);
    copy[size] = '\0';
    return copy;
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

/* A text column as a view; NULL stays NULL. */
static char *
view_text(sqlite3_stmt *stmt, int column, int *rc)
{
    char *text;

    if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
        return NULL;
    text = (char *)sqlite3_column_text(stmt, column);
    if (!text)
        *rc = ERR_NOMEM;
    return text;
}

static void
copy_name(sqlite3_stmt *stmt, int column, char *out, size_t size)
{
    const unsigned char *text = sqlite3_column_text(stmt, column);

    snprintf(out, size, "%s", text ? (const char *)text : "");
}

int
task_row_view(sqlite3_stmt *stmt, struct task_row *out)
{
    int rc = 0;

    memset(out, 0, sizeof(*out));
    copy_name(stmt, 0, out->id, sizeof(out->id));
    out->name = view_text(stmt, 1, &rc);
    out->entry_point = view_text(stmt, 2, &rc);
    out->level = sqlite3_column_int(stmt, 3);
    out->dynamic_shapes = sqlite3_column_int(stmt, 4) != 0;
    out->metadata = view_text(stmt, 5, &rc);
    out->created_ms = sqlite3_column_int64(stmt, 6);
    return rc;
}

int
submission_row_view(sqlite3_stmt *stmt, struct submission_row *out)
{
    int rc = 0;

    memset(out, 0, sizeof(*out));
    copy_name(stmt, 0, out->id, sizeof(out->id));
    copy_name(stmt, 1, out->group_id, sizeof(out->group_id));
    out->group_index = sqlite3_column_int(stmt, 2);
    copy_name(stmt, 3, out->task_id, sizeof(out->task_id));
    copy_name(stmt, 4, out->source_hash, sizeof(out->source_hash));
    out->state = (enum submission_state)sqlite3_column_int(stmt, 5);
    out->priority = sqlite3_column_int(stmt, 6);
    out->client = view_text(stmt, 7, &rc);
    out->request = view_text(stmt, 8, &rc);
    out->attempts = sqlite3_column_int(stmt, 9);
    out->created_ms = sqlite3_column_int64(stmt, 10);
    out->finished_ms = sqlite3_column_int64(stmt, 11);
    out->stage = view_text(stmt, 12, &rc);
    out->class_ = view_text(stmt, 13, &rc);
    out->reward = sqlite3_column_type(stmt, 14) == SQLITE_NULL ? NAN : sqlite3_column_double(stmt, 14);
    out->verdict = view_text(stmt, 15, &rc);
    return rc;
}

int
group_row_view(sqlite3_stmt *stmt, struct group_row *out)
{
    int rc = 0;

    memset(out, 0, sizeof(*out));
    copy_name(stmt, 0, out->id, sizeof(out->id));
    copy_name(stmt, 1, out->task_id, sizeof(out->task_id));
    out->request = view_text(stmt, 2, &rc);
    out->size = sqlite3_column_int(stmt, 3);
    out->created_ms = sqlite3_column_int64(stmt, 4);
    return rc;
}
