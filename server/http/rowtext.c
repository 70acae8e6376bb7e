#include "server/http/rowtext.h"

#include <string.h>

#include "common/auto.h"
#include "common/json.h"

/* The members of a document that a row has, in this order. */
static const char *const submission_members[] = { "id",        "group",       "group_index", "task",
                                                  "task_name", "client",      "priority",    "state",
                                                  "class",     "stage",       "reward",      "policy",
                                                  "until",     "entry_point", "source",      "passed_stage",
                                                  "failed_at", "attempts",    "created",     "finished",
                                                  "flags",     "metadata",    NULL };
static const char *const reward_members[] = {
    "id",     "group",       "group_index",  "task",       "task_name", "client",   "class",
    "reward", "reward_spec", "reward_parts", "components", "created",   "finished", NULL
};

static const struct {
    const char *name;
    const char *const *members; /* NULL: the whole document */
} tables[ROWTEXT_TABLES] = {
    [ROWTEXT_SUBMISSIONS] = { "submissions", submission_members },
    [ROWTEXT_VERDICTS] = { "verdicts", NULL },
    [ROWTEXT_REWARDS] = { "rewards", reward_members },
};

int
rowtext_find(const char *name)
{
    for (int i = 0; i < ROWTEXT_TABLES; i++)
        if (strcmp(tables[i].name, name) == 0)
            return i;
    return -1;
}

int
rowtext_json(struct buffer *out, json_t *row)
{
    AUTO_FREE char *text = json_dumps(row, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));

    if (!text)
        return ERR_NOMEM;
    /* jansson leaves DEL as it is; it can only stand inside a string. */
    for (const char *at = text; *at;) {
        size_t size = strcspn(at, "\x7f");
        buffer_append(out, at, size);
        at += size;
        if (*at) {
            buffer_add(out, "\\u007f");
            at++;
        }
    }
    return buffer_add(out, "\n");
}

json_t *
rowtext_pick(enum rowtext_table table, json_t *document)
{
    const char *const *members = tables[table].members;
    json_t *row = members ? json_object() : json_incref(document);

    for (size_t i = 0; row && members && members[i]; i++)
        json_object_set_new(row, members[i], get_or_null(document, members[i]));
    return row;
}
