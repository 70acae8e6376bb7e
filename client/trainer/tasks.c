#include "client/trainer/tasks.h"

#include <fts.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "client/trainer/rows.h"
#include "common/auto.h"
#include "common/statistics.h"
#include "common/buffer.h"

enum { SOURCE_MAX = 1024 * 1024 };

static void
task_release(struct task *t)
{
    free(t->name);
    free(t->reference);
    free(t->entry_point);
}

void
tasks_free(struct task_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        task_release(&set->tasks[i]);
    free(set->tasks);
    *set = (struct task_set){ 0 };
}

char *
task_class_wanted(const struct task *task)
{
    char *out = NULL;
    return asprintf(&out, "%sNew", task->entry_point) < 0 ? NULL : out;
}

/* Takes the task's strings. */
static int
add(struct task_set *set, struct task *t, struct error *err)
{
    struct task *grown = realloc(set->tasks, (set->n + 1) * sizeof(*grown));
    if (!grown || !t->name || !t->reference || !t->entry_point) {
        set->tasks = grown ? grown : set->tasks;
        task_release(t);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    set->tasks = grown;
    set->tasks[set->n++] = *t;
    return 0;
}

static void
skip(struct task_set *set, const char *where, const char *why)
{
    fprintf(stderr, "trainer: %s: %s; skipped\n", where, why);
    set->skipped++;
}

/* --- a directory of problem files --- */

/* Of the innermost directory that is called levelN; 0: there is none. */
static int
level_of(const char *path)
{
    int level = 0;
    for (const char *at = path; (at = strstr(at, "level")) != NULL; at += 5) {
        size_t digits = strspn(at + 5, "0123456789");
        if ((at == path || at[-1] == '/') && digits > 0 && at[5 + digits] == '/')
            level = atoi(at + 5);
    }
    return level;
}

static int
add_file(struct task_set *set, const char *path, int level, struct error *err)
{
    AUTO_BUFFER struct buffer source = BUFFER_INIT;
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    struct task t = { .level = level_of(path), .problem = atoi(base) };

    if (level && t.level != level)
        return 0;
    int rc = buffer_read_file(&source, path, SOURCE_MAX, err);
    if (rc != 0 && rc != ERR_INPUT)
        return rc;
    if (source.size == 0 || memchr(source.data, 0, source.size) || source.size > SOURCE_MAX) {
        skip(set, path, "empty, binary or longer than 1 MiB");
        return 0;
    }
    if (t.level)
        rc = asprintf(&t.name, "level%d/%.*s", t.level, (int)(strlen(base) - 3), base);
    else
        rc = asprintf(&t.name, "%.*s", (int)(strlen(base) - 3), base);
    t.name = rc < 0 ? NULL : t.name;
    t.reference = strdup(source.data);
    t.entry_point = strdup("Model");
    return add(set, &t, err);
}

static int
add_directory(struct task_set *set, const char *path, int level, struct error *err)
{
    char *const roots[] = { (char *)path, NULL };
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;
    int rc = 0;

    if (!tree)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    while (rc == 0 && (entry = fts_read(tree)) != NULL) {
        if (entry->fts_info == FTS_D && entry->fts_level > 0 && entry->fts_name[0] == '.')
            fts_set(tree, entry, FTS_SKIP);
        bool is_python =
            entry->fts_namelen > 3 && strcmp(entry->fts_name + entry->fts_namelen - 3, ".py") == 0;
        if (entry->fts_info == FTS_F && is_python && strncmp(entry->fts_name, "__", 2) != 0)
            rc = add_file(set, entry->fts_path, level, err);
    }
    fts_close(tree);
    return rc;
}

/* --- rows --- */

static const char *
text_of(json_t *row, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_is_string(json_object_get(row, names[i])))
            return json_string_value(json_object_get(row, names[i]));
    return NULL;
}

/* Also "2", and 2.0: pandas writes a column so of which some are missing. */
static int
number_of(json_t *row, const char *name, const char *other)
{
    json_t *value = json_object_get(row, name);
    if (!value || json_is_null(value))
        value = json_object_get(row, other);
    double x = json_number_value(value);
    return json_is_string(value) ? atoi(json_string_value(value)) : fabs(x) <= INT_MAX ? (int)x : 0;
}

static int
add_row(struct task_set *set, json_t *row, const char *path, size_t number, int level, struct error *err)
{
    static const char *const sources[] = { "pytorch_code", "python_code", "reference", "code" };
    static const char *const names[] = { "name", "id", "uuid" };
    const char *source = text_of(row, sources, ARRAY_LEN(sources));
    const char *name = text_of(row, names, ARRAY_LEN(names));
    const char *entry = json_string_value(json_object_get(row, "entry_point"));
    char where[300], numbered[32];
    struct task t = { .level = number_of(row, "level", "difficulty"),
                      .problem = number_of(row, "problem_id", "") };

    snprintf(where, sizeof(where), "%.260s, row %zu", path, number);
    snprintf(numbered, sizeof(numbered), "row%zu", number);
    if (!json_is_object(row) || !source || strlen(source) > SOURCE_MAX) {
        skip(set, where, json_is_object(row) ? "no reference of at most 1 MiB in it" : "not a JSON object");
        return 0;
    }
    if (level && t.level != level)
        return 0;
    if (json_is_integer(json_object_get(row, "uuid")))
        snprintf(numbered, sizeof(numbered), "%lld",
                 (long long)json_integer_value(json_object_get(row, "uuid")));
    t.name = strdup(name && *name ? name : numbered);
    t.reference = strdup(source);
    t.entry_point = strdup(entry ? entry : "Model");
    return add(set, &t, err);
}

struct filling {
    struct task_set *set;
    const char *path;
    int level;
};

static int
row_cb(void *arg, size_t number, json_t *row, const char *fault, struct error *err)
{
    struct filling *f = arg;
    if (row)
        return add_row(f->set, row, f->path, number, f->level, err);
    char where[300];
    snprintf(where, sizeof(where), "%.260s, row %zu", f->path, number);
    skip(f->set, where, fault);
    return 0;
}

/* --- the set --- */

static int
compare(const void *left, const void *right)
{
    const struct task *a = left, *b = right;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->problem != b->problem)
        return a->problem < b->problem ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int
compare_names(const void *left, const void *right)
{
    int order = strcmp(((const struct task *)left)->name, ((const struct task *)right)->name);
    return order ? order : compare(left, right);
}

/* Also where they differ in level: the journal knows a task by its name alone. */
static void
drop_repeated(struct task_set *set)
{
    size_t kept = 0;
    qsort(set->tasks, set->n, sizeof(*set->tasks), compare_names);
    for (size_t i = 0; i < set->n; i++) {
        if (kept > 0 && strcmp(set->tasks[kept - 1].name, set->tasks[i].name) == 0) {
            skip(set, set->tasks[i].name, "a task of this name is there already");
            task_release(&set->tasks[i]);
        } else {
            set->tasks[kept++] = set->tasks[i];
        }
    }
    set->n = kept;
}

int
tasks_load(const char *path, int level, struct task_set *out, struct error *err)
{
    struct stat status;
    size_t size = strlen(path);
    int rc;

    *out = (struct task_set){ 0 };
    if (size > 8 && strcmp(path + size - 8, ".parquet") == 0)
        return error_set(err, ERR_INPUT,
                         "%.150s is parquet: `trainer prepare --file` makes a tasks.jsonl of it", path);
    if (stat(path, &status) != 0)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    if (S_ISDIR(status.st_mode))
        rc = add_directory(out, path, level, err);
    else if (size > 3 && strcmp(path + size - 3, ".py") == 0)
        rc = add_file(out, path, level, err);
    else
        rc = rows_each(path, row_cb, &(struct filling){ out, path, level }, err);
    if (rc == 0 && out->n == 0)
        rc = level ? error_set(err, ERR_INPUT, "nothing in %s is a task of level %d (--level; 0 is all)",
                               path, level)
                   : error_set(err, ERR_INPUT, "nothing in %s is a task", path);
    if (rc != 0) {
        tasks_free(out);
        return rc;
    }
    drop_repeated(out);
    qsort(out->tasks, out->n, sizeof(*out->tasks), compare);
    return 0;
}

void
tasks_draw(struct task_set *set, size_t n, uint64_t seed)
{
    size_t left = n < set->n ? n : set->n;
    AUTO_FREE bool *is_kept = calloc(set->n + 1, sizeof(*is_kept));
    for (size_t i = 0; is_kept && i < set->n; i++) {
        /* Selection sampling (Knuth, vol. 2, 3.4.2, S): each with chance left / remaining. */
        is_kept[i] = stats_random(&seed) % (set->n - i) < left;
        left -= is_kept[i];
    }
    if (is_kept)
        tasks_keep(set, is_kept);
}

void
tasks_keep(struct task_set *set, const bool *is_kept)
{
    size_t kept = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (is_kept[i])
            set->tasks[kept++] = set->tasks[i];
        else
            task_release(&set->tasks[i]);
    }
    set->n = kept;
}
