#include "server/http/engine.h"

#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"

static json_t *
text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *
json_or_null(const char *text)
{
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    return value ? value : json_null();
}

/* What lists tell of a task. */
static json_t *
task_brief(const struct task_row *row)
{
    char created[CLOCK_TEXT_SIZE];

    clock_text(row->created_ms, created);
    json_t *level = row->level ? json_integer(row->level) : json_null();
    return json_pack("{s:s, s:o, s:s?, s:o, s:b, s:s}", "id", row->id, "name", text_or_null(row->name),
                     "entry_point", row->entry_point, "level", level, "dynamic_shapes",
                     (int)row->dynamic_shapes, "created", created);
}

static json_t *
task_document(const struct task_row *row)
{
    json_t *task = task_brief(row);

    if (task) {
        json_object_set_new(task, "reference", text_or_null(row->reference));
        AUTO_JSON json_t *spec = json_or_null(row->spec);
        json_t *flags = json_object_get(spec, "flags");
        json_object_set_new(task, "flags", flags ? json_incref(flags) : json_array());
        json_object_set(task, "spec", spec);
        json_object_set_new(task, "metadata", json_or_null(row->metadata));
        json_object_set_new(task, "links", json_pack("{s:s+}", "self", "/v1/tasks/", row->id));
    }
    return task;
}

/* set_json of the task; false: the problem is sent. */
static bool
set_task(struct exchange *x, unsigned status, const char *id)
{
    struct task_row row = { 0 };
    struct error err = { 0 };
    char location[128];

    if (store_get_task(x->http->store, id, &row, &err) != 0) {
        if (err.code == ERR_NOTFOUND)
            exchange_problem(x, PROBLEM_UNKNOWN_TASK, "there is no task \"%.100s\"", id);
        else
            exchange_error(x, &err, "task");
        return false;
    }
    exchange_set_json(x, status, task_document(&row));
    task_row_release(&row);
    snprintf(location, sizeof(location), "/v1/tasks/%s", id);
    if (status != 200)
        exchange_header(x, MHD_HTTP_HEADER_LOCATION, location);
    return true;
}

void
task_show(struct exchange *x)
{
    char id[HASH_TEXT_SIZE];
    if (!exchange_task_id(x, x->target.segments[2], id) || !set_task(x, 200, id))
        return;
    exchange_tag(x);
    exchange_send(x);
}

static void
task_added(struct exchange *x, const struct funnel_answer *answer)
{
    if (!exchange_refused(x, answer) && set_task(x, answer->is_new ? 201 : 200, answer->id))
        exchange_send(x);
}

void
task_add(struct exchange *x)
{
    struct pending *p = exchange_begin(x, NULL, task_added);
    access_stamp(x);
    if (p)
        funnel_add_task(x->http->funnel, x->document, exchange_pending_cb, p);
}

static void
note_as_admin(const struct exchange *x, const char *action, const char *id)
{
    if (*x->caller.client && !access_client(x))
        access_note(x, action, id);
}

static void
task_renamed(struct exchange *x, const struct funnel_answer *answer)
{
    if (exchange_refused(x, answer))
        return;
    note_as_admin(x, "rename task as admin", answer->id);
    if (set_task(x, 200, answer->id))
        exchange_send(x);
}

void
task_rename(struct exchange *x)
{
    char id[HASH_TEXT_SIZE];

    if (!exchange_task_id(x, x->target.segments[2], id))
        return;
    struct pending *p = exchange_begin(x, NULL, task_renamed);
    if (p)
        funnel_rename_task(x->http->funnel, access_client(x), id, x->document, exchange_pending_cb, p);
}

/* Where others have names for it, it is there still. */
static void
task_removed(struct exchange *x, const struct funnel_answer *answer)
{
    struct task_row row = { 0 };

    if (exchange_refused(x, answer))
        return;
    note_as_admin(x, "delete task as admin", answer->id);
    bool is_there = store_get_task(x->http->store, answer->id, &row, NULL) == 0;
    task_row_release(&row);
    exchange_json(x, 200, json_pack("{s:s, s:b}", "id", answer->id, "deleted", !is_there));
}

void
task_remove(struct exchange *x)
{
    char id[HASH_TEXT_SIZE];

    if (!exchange_task_id(x, x->target.segments[2], id))
        return;
    struct pending *p = exchange_begin(x, NULL, task_removed);
    if (p)
        funnel_remove_task(x->http->funnel, access_client(x), id, exchange_pending_cb, p);
}

struct task_page {
    json_t *items;
    char last[HASH_TEXT_SIZE];
};

static bool
task_row_cb(void *arg, const struct task_row *row)
{
    struct task_page *page = arg;

    json_array_append_new(page->items, task_brief(row));
    memcpy(page->last, row->id, sizeof(page->last));
    return true;
}

static bool
one_more_cb(void *arg, const struct task_row *row)
{
    (void)row;
    *(bool *)arg = true;
    return false;
}

void
task_list(struct exchange *x)
{
    const char *cursor = target_value(&x->target, "cursor");
    const char *name = target_value(&x->target, "name");
    struct store *store = x->http->store;
    int limit = exchange_limit(x);
    struct task_page page = { 0 };
    struct error err = { 0 };
    bool has_more = false;

    if (limit == 0)
        return;
    if (cursor && !hash_is_valid(cursor)) {
        exchange_problem_at(x, PROBLEM_PARAMETER, "parameter", "cursor", "is not a cursor of this list");
        return;
    }
    AUTO_JSON json_t *items = page.items = json_array();
    int rc = items ? store_list_tasks(store, name, cursor, limit, task_row_cb, &page, &err)
                   : error_set(&err, ERR_NOMEM, "no memory for the list");
    if (rc == 0 && (int)json_array_size(items) == limit)
        rc = store_list_tasks(store, name, page.last, 1, one_more_cb, &has_more, &err);
    if (rc == 0)
        exchange_page(x, ptr_take(&items), has_more ? page.last : NULL);
    else
        exchange_error(x, &err, "task");
}
