/*
 * find.c - ids sort by what they begin with, and a list goes on behind its cursor, which is an id. So one short page from
 * the right place has all that begin with a text, or enough of them to say that it is not one.
 */
#include "client/cli/find.h"

#include <stdio.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/ids.h"

#define SHORTEST 6
#define SHOWN 8
#define TASK_PREFIX "sha256:"
#define TASK_PREFIX_SIZE (sizeof(TASK_PREFIX) - 1)
#define TASK_ID_SIZE (TASK_PREFIX_SIZE + 64)

struct kind {
    const char *path, *what;
    const char *behind; /* completes a beginning to a cursor before the first id that has it */
};

static const struct kind submissions = { "/v1/submissions", "submission",
                                         "ffffffff-ffff-7fff-bfff-ffffffffffff" };
static const struct kind groups = { "/v1/groups", "group", "ffffffff-ffff-7fff-bfff-ffffffffffff" };
static const struct kind tasks = { "/v1/tasks", "task",
                                   TASK_PREFIX
                                   "0000000000000000000000000000000000000000000000000000000000000000" };

/* Add to found {"id", "what"} of those of this kind that begin with text. */
static int
add_found(struct cli *cli, const struct kind *kind, const char *text, json_t *found)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *page = NULL;
    json_t *item;
    size_t i, size = strlen(text);

    if (buffer_printf(&path, "%s?limit=%d", kind->path, SHOWN + 1) < 0)
        return cli_complain(CLI_CONFIG, "out of memory");
    api_path_add(&path, "&cursor=", text);
    api_path_add(&path, "", kind->behind + size);
    int code = api_call(cli, "GET", path.data, NULL, &page);
    json_array_foreach(json_object_get(page, "items"), i, item)
    {
        const char *id = text_member(item, "id");
        if (id && strncmp(id, text, size) == 0)
            json_array_append_new(found, json_pack("{s:s, s:s}", "id", id, "what", kind->what));
    }
    return code;
}

static int
take_only(const char *text, const json_t *found, char **id)
{
    const size_t n = json_array_size(found);

    if (n == 1)
        return (*id = strdup(text_member(json_array_get(found, 0), "id")))
                   ? CLI_OK
                   : cli_complain(CLI_CONFIG, "out of memory");
    if (n == 0)
        return cli_complain(CLI_NOT_FOUND, "no id begins with \"%s\"", text);
    cli_complain(CLI_USAGE, "more than one id begins with \"%s\":", text);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        const json_t *one = json_array_get(found, i);
        fprintf(stderr, "  %s  ", text_member(one, "what"));
        text_print(stderr, text_member(one, "id"));
        fputc('\n', stderr);
    }
    if (n > SHOWN)
        fputs("  and others\n", stderr);
    return CLI_USAGE;
}

static int
keep(const char *text, char **id)
{
    *id = strdup(text);
    return *id ? CLI_OK : cli_complain(CLI_CONFIG, "out of memory");
}

/* Digits, and dashes where an id has them; or a whole one that lacks its end. */
static bool
can_begin_id(const char *text)
{
    size_t size = strlen(text);

    if (size < SHORTEST || size >= ID_SIZE - 1)
        return false;
    for (size_t i = 0; i < size; i++) {
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (is_dash ? text[i] != '-' : !strchr("0123456789abcdef", text[i]))
            return false;
    }
    return (size <= 14 || text[14] == '7') && (size <= 19 || strchr("89ab", text[19]));
}

static int
find_newest(struct cli *cli, const struct kind *kind, char **id)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *page = NULL;

    if (buffer_printf(&path, "%s?limit=1", kind->path) < 0)
        return cli_complain(CLI_CONFIG, "out of memory");
    int code = api_call(cli, "GET", path.data, NULL, &page);
    const char *newest = text_member(json_array_get(json_object_get(page, "items"), 0), "id");
    if (code == CLI_OK && !newest)
        return cli_complain(CLI_NOT_FOUND, "\"-\" is the newest %s, and there is none", kind->what);
    return code == CLI_OK ? keep(newest, id) : code;
}

int
find_id(struct cli *cli, const char *text, enum find_what what, char **id)
{
    AUTO_JSON json_t *found = json_array();
    int code = CLI_OK;

    *id = NULL;
    if (strcmp(text, "-") == 0)
        return find_newest(cli, what & FIND_SUBMISSION ? &submissions : &groups, id);
    if (!can_begin_id(text))
        return keep(text, id);
    if (what & FIND_SUBMISSION)
        code = add_found(cli, &submissions, text, found);
    if (code == CLI_OK && what & FIND_GROUP)
        code = add_found(cli, &groups, text, found);
    return code == CLI_OK ? take_only(text, found, id) : code;
}

int
find_task_id(struct cli *cli, const char *text, char **id)
{
    AUTO_JSON json_t *found = json_array();
    size_t size = strlen(text);
    bool is_hash = strncmp(text, TASK_PREFIX, TASK_PREFIX_SIZE) == 0 &&
                   strspn(text + TASK_PREFIX_SIZE, "0123456789abcdef") == size - TASK_PREFIX_SIZE;

    *id = NULL;
    if (!is_hash || size < TASK_PREFIX_SIZE + SHORTEST || size >= TASK_ID_SIZE)
        return keep(text, id);
    int code = add_found(cli, &tasks, text, found);
    return code == CLI_OK ? take_only(text, found, id) : code;
}

/* The callers continue with the id of the document found. */
static int
check_named(const json_t *found)
{
    return text_member(found, "id") ? CLI_OK
                                    : cli_complain(CLI_NETWORK, "the answer has no id: is this verifierd?");
}

int
find_document(struct cli *cli, const char *id, json_t **found, bool *is_group)
{
    AUTO_BUFFER struct buffer submission = BUFFER_INIT, group = BUFFER_INIT;
    AUTO_FREE char *whole = NULL;
    *is_group = false;
    int code = find_id(cli, id, FIND_EITHER, &whole);
    if (code != CLI_OK)
        return code;
    api_path_add(&submission, "/v1/submissions/", whole);
    code = api_find(cli, submission.data, found);
    if (code != CLI_NOT_FOUND)
        return code == CLI_OK ? check_named(*found) : code;
    *is_group = true;
    api_path_add(&group, "/v1/groups/", whole);
    code = api_find(cli, group.data, found);
    if (code == CLI_NOT_FOUND)
        return cli_complain(code, "no submission or group has the id \"%s\"", id);
    return code == CLI_OK ? check_named(*found) : code;
}
