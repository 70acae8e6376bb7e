#include "server/submission/seen.h"

#include <stdlib.h>

#include "common/auto.h"

bool
row_is_unfinished(const struct submission_row *row)
{
    return row->state == SUBMISSION_QUEUED || row->state == SUBMISSION_RUNNING;
}

static struct submission_row *
next_row(struct seen *out)
{
    if (out->n == out->room) {
        size_t room = out->room ? 2 * out->room : 1;
        struct submission_row *rows = reallocarray(out->rows, room, sizeof(*rows));
        if (!rows)
            return NULL;
        out->rows = rows;
        out->room = room;
    }
    struct submission_row *row = &out->rows[out->n++];
    *row = (struct submission_row){ 0 };
    return row;
}

int
seen_add(struct seen *out, const struct submission_row *row)
{
    struct submission_row *copy = next_row(out);

    return copy ? submission_row_copy(row, copy) : ERR_NOMEM;
}

/* One that cannot be read is shown without the name. */
static void
read_task_name(struct store_reader *r, const char *task_id, struct seen *out)
{
    struct task_row task = { 0 };

    if (reader_get_task(r, task_id, &task, NULL) == 0)
        out->task_name = ptr_take(&task.name);
    task_row_release(&task);
}

int
seen_read(struct store_reader *r, const char *id, struct seen *out, struct error *err)
{
    struct submission_row *row = next_row(out);

    if (!row)
        return error_set(err, ERR_NOMEM, "no memory to read %s", id);
    int rc = reader_get_submission(r, id, row, err);
    if (rc == 0 && !row->verdict)
        read_task_name(r, row->task_id, out);
    return rc;
}

struct members {
    struct seen *out;
    bool is_whole, is_short;
};

static bool
member_cb(void *arg, const struct submission_row *row)
{
    struct members *m = arg;

    if (m->is_whole || row_is_unfinished(row))
        m->is_short = seen_add(m->out, row) != 0;
    return !m->is_short;
}

int
seen_read_group(struct store_reader *r, const char *id, bool is_whole, struct seen *out, struct error *err)
{
    struct members m = { .out = out, .is_whole = is_whole };
    int rc = reader_get_group(r, id, &out->group, err);

    if (rc == 0)
        rc = reader_each_of_group(r, id, member_cb, &m, err);
    if (rc == 0 && m.is_short)
        rc = error_set(err, ERR_NOMEM, "no memory to read group %s", id);
    if (rc == 0)
        read_task_name(r, out->group.task_id, out);
    return rc;
}

void
seen_release(struct seen *seen)
{
    for (size_t i = 0; i < seen->n; i++)
        submission_row_release(&seen->rows[i]);
    free(ptr_take(&seen->rows));
    free(ptr_take(&seen->task_name));
    group_row_release(&seen->group);
    *seen = (struct seen){ 0 };
}
