#include "server/store/sqlite/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"

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
    out->claim = sqlite3_column_int64(stmt, 16);
    out->is_lost = sqlite3_column_int(stmt, 17) != 0;
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
    out->age_ms = clock_wall_ms() - out->created_ms;
    return rc;
}
