#include "server/http/handlers.h"

#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "server/http/access.h"
#include "server/http/answers.h"

static json_t *
json_or_null(const char *text)
{
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    return value ? value : json_null();
}

/* The part of a task that lists show. */
static json_t *
task_brief(const struct task_row *row)
{
    json_t *level = row->level ? json_integer(row->level) : json_null();
    return json_pack("{s:s, s:s?, s:s?, s:o, s:b, s:o}", "id", row->id, "name", row->name, "entry_point",
                     row->entry_point, "level", level, "dynamic_shapes", (int)row->dynamic_shapes, "created",
                     time_json(row->created_ms));
}

static json_t *
task_document(const struct task_row *row)
{
    json_t *task = task_brief(row);

    if (task) {
        json_object_set_new(task, "reference", json_pack("s?", row->reference));
        AUTO_JSON json_t *spec = json_or_null(row->spec);
        json_t *flags = json_object_get(spec, "flags");
        json_object_set_new(task, "flags", flags ? json_incref(flags) : json_array());
        json_object_set(task, "spec", spec);
        json_object_set_new(task, "metadata", json_or_null(row->metadata));
        json_object_set_new(task, "links", json_pack("{s:s+}", "self", "/v1/tasks/", row->id));
    }
    return task;
}

/* What a route reads of a task, before or after something is done with it. */
struct task_look {
    struct exchange_read call;
    bool is_missing;
    unsigned status;
};

static int
read_task(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct task_row row = { 0 };
    int rc = reader_get_task(r, call->task_id, &row, err);

    if (rc == 0)
        call->document = task_document(&row);
    task_row_release(&row);
    return rc;
}

static void
answer_task(struct exchange *x, struct exchange_read *call)
{
    struct task_look *l = (struct task_look *)call;
    char location[128];

    exchange_set_json(x, l->status, ptr_take(&call->document));
    snprintf(location, sizeof(location), "/v1/tasks/%s", call->task_id);
    if (l->status != 200)
        exchange_header(x, MHD_HTTP_HEADER_LOCATION, location);
    if (x->route->handle == task_show)
        exchange_tag(x);
    exchange_send(x);
}

/* Have `read` read what the task is called by, and `answer` go on. */
static void
look(struct exchange *x, const char *task, unsigned status,
     int (*read)(struct exchange_read *call, struct store_reader *r, struct error *err),
     void (*answer)(struct exchange *x, struct exchange_read *call))
{
    const struct exchange_read call = { .read = read, .answer = answer, .what = "task" };
    struct task_look *l = exchange_read_new(x, &call, sizeof(*l));

    if (!l)
        return;
    l->status = status;
    exchange_read_of_task(x, &l->call, task);
}

void
task_show(struct exchange *x)
{
    look(x, x->target.segments[2], 200, read_task, answer_task);
}

static void
task_added(struct exchange *x, const struct funnel_answer *answer)
{
    if (!exchange_refused(x, answer))
        look(x, answer->id, answer->is_new ? 201 : 200, read_task, answer_task);
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
    if (*x->caller.client && !exchange_client(x))
        access_note(x, action, id);
}

static void
task_renamed(struct exchange *x, const struct funnel_answer *answer)
{
    if (exchange_refused(x, answer))
        return;
    note_as_admin(x, "rename task as admin", answer->id);
    look(x, answer->id, 200, read_task, answer_task);
}

/* Its id is all that is looked for; whether it is there is the writer's to say. */
static int
read_nothing(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    (void)call, (void)r, (void)err;
    return 0;
}

static void
rename_found(struct exchange *x, struct exchange_read *call)
{
    struct pending *p = exchange_begin(x, NULL, task_renamed);

    if (p)
        funnel_rename_task(x->http->funnel, exchange_client(x), call->task_id, x->document,
                           exchange_pending_cb, p);
}

void
task_rename(struct exchange *x)
{
    look(x, x->target.segments[2], 200, read_nothing, rename_found);
}

static int
read_whether_there(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct task_look *l = (struct task_look *)call;
    struct task_row row = { 0 };

    l->is_missing = reader_get_task(r, call->task_id, &row, err) != 0;
    task_row_release(&row);
    return 0;
}

/* Where others have names for it, it is there still. */
static void
answer_removed(struct exchange *x, struct exchange_read *call)
{
    struct task_look *l = (struct task_look *)call;

    exchange_json(x, 200, json_pack("{s:s, s:b}", "id", call->task_id, "deleted", (int)l->is_missing));
}

static void
task_removed(struct exchange *x, const struct funnel_answer *answer)
{
    if (exchange_refused(x, answer))
        return;
    note_as_admin(x, "delete task as admin", answer->id);
    look(x, answer->id, 200, read_whether_there, answer_removed);
}

static void
remove_found(struct exchange *x, struct exchange_read *call)
{
    struct pending *p = exchange_begin(x, NULL, task_removed);

    if (p)
        funnel_remove_task(x->http->funnel, exchange_client(x), call->task_id, exchange_pending_cb, p);
}

void
task_remove(struct exchange *x)
{
    look(x, x->target.segments[2], 200, read_nothing, remove_found);
}

struct task_page {
    struct page_read page;
    const char *name; /* NULL: any */
    char after[HASH_TEXT_SIZE];
};

static bool
task_row_cb(void *arg, const struct task_row *row)
{
    struct page_read *page = arg;

    if (page_is_full(page))
        return false;
    json_array_append_new(page->call.items, task_brief(row));
    snprintf(page->last, sizeof(page->last), "%s", row->id);
    return true;
}

static int
read_page(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct task_page *c = (struct task_page *)call;

    return reader_list_tasks(r, c->name, c->after, c->page.limit + 1, task_row_cb, c, err);
}

void
task_list(struct exchange *x)
{
    static const struct exchange_read call = { .read = read_page, .answer = page_answer, .what = "task" };
    const char *cursor = target_value(&x->target, "cursor");
    int limit = exchange_limit(x);

    if (limit && cursor && !hash_is_valid(cursor)) {
        exchange_bad_parameter(x, "cursor", "is not a cursor of this list");
        return;
    }
    struct task_page *c = page_read_new(x, &call, sizeof(*c), limit);
    if (!c)
        return;
    c->name = exchange_read_keep(&c->page.call, target_value(&x->target, "name"));
    snprintf(c->after, sizeof(c->after), "%s", cursor ? cursor : "");
    exchange_read(x, &c->page.call);
}
