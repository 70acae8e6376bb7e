#include "client/cli/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/classes.h"

#define FILE_MAX ((size_t)2 << 20)
#define FILES_MAX 4096 /* in one directory */
#define TASK_KEYS "kind level dynamic_shapes entry needs policy why what"
#define CANDIDATE_KEYS "expect kind class policy entry needs why what"
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

static const char *const kind_names[CORPUS_KINDS] = { "honest", "suspicious", "mistake", "cheat",
                                                      "robustness" };

const char *
corpus_kind_name(enum corpus_kind kind)
{
    return kind_names[kind];
}

/* --- sets of names --- */

/* Nothing in a corpus may be expected to end by a fault of the service. */
unsigned
corpus_class_bit(const char *name)
{
    enum verdict_class class_ = class_find(name);
    return class_ == CLASS_NONE || class_info(class_)->fault == FAULT_SERVICE ? 0 : 1U << class_;
}

unsigned
corpus_stage_bit(const char *name)
{
    enum stage stage = strcmp(name, stage_name(STAGE_EXTRACT)) == 0 ? STAGE_EXTRACT : stage_find(name);
    return stage == STAGE_NONE ? 0 : 1U << stage;
}

static void
add_name(struct buffer *text, const char *name)
{
    buffer_printf(text, "%s%s", text->size ? "|" : "", name);
}

char *
corpus_class_names(unsigned classes)
{
    struct buffer text = BUFFER_INIT;
    for (int i = CLASS_NONE + 1; i < CLASS_N; i++)
        if (classes & 1U << i)
            add_name(&text, class_name((enum verdict_class)i));
    return buffer_take(&text, NULL);
}

char *
corpus_stage_names(unsigned stages)
{
    struct buffer text = BUFFER_INIT;
    for (int i = STAGE_AST; i <= STAGE_EXTRACT; i++)
        if (stages & 1U << i)
            add_name(&text, stage_name((enum stage)i));
    return buffer_take(&text, NULL);
}

/* "a|b|c" as a set; ERR_INPUT where a name is unknown or empty. */
static int
read_set(unsigned (*bit_of)(const char *name), const char *text, size_t size, unsigned *out,
         struct error *err)
{
    const char *end = text + size;
    *out = 0;
    for (;;) {
        const char *bar = memchr(text, '|', (size_t)(end - text)), *stop = bar ? bar : end;
        while (text < stop && *text == ' ')
            text++;
        size_t length = (size_t)(stop - text);
        while (length > 0 && text[length - 1] == ' ')
            length--;
        char name[32];
        snprintf(name, sizeof(name), "%.*s", (int)length, text);
        unsigned bit = length < sizeof(name) ? bit_of(name) : 0;
        if (bit == 0)
            return error_set(err, ERR_INPUT, "there is no class or stage \"%.*s\"", (int)length, text);
        *out |= bit;
        if (!bar)
            return 0;
        text = bar + 1;
    }
}

/* --- headers --- */

static bool
is_key_character(char c)
{
    return (c >= 'a' && c <= 'z') || c == '_';
}

/* Blanks inside a line, as Python's regular expressions take them. */
static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* The parts of a "# key: value" line; false: it is none. */
static bool
split_line(const char *line, const char *end, const char **key, size_t *key_size, const char **value,
           size_t *value_size)
{
    if (line == end || *line++ != '#')
        return false;
    while (line < end && is_blank(*line))
        line++;
    *key = line;
    while (line < end && is_key_character(*line))
        line++;
    *key_size = (size_t)(line - *key);
    if (*key_size == 0 || line == end || *line++ != ':')
        return false;
    while (line < end && is_blank(*line))
        line++;
    while (end > line && is_blank(end[-1]))
        end--;
    *value = line;
    *value_size = (size_t)(end - line);
    return true;
}

static bool
is_known(const char *keys, const char *key, size_t size)
{
    for (const char *at = keys; *at;) {
        size_t length = strcspn(at, " ");
        if (length == size && memcmp(at, key, size) == 0)
            return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

static int
add_line(struct corpus_header *h, const char *key, size_t key_size, const char *value, size_t value_size,
         const char *keys, struct error *err)
{
    if (key_size >= CORPUS_KEY_SIZE || !is_known(keys, key, key_size))
        return error_set(err, ERR_INPUT, "unknown header key \"%.*s\"", (int)key_size, key);
    for (size_t i = 0; i < h->n; i++)
        if (strlen(h->lines[i].key) == key_size && memcmp(h->lines[i].key, key, key_size) == 0)
            return error_set(err, ERR_INPUT, "header key \"%.*s\" twice", (int)key_size, key);
    if (h->n == CORPUS_KEYS_MAX)
        return error_set(err, ERR_INPUT, "more than %d header keys", CORPUS_KEYS_MAX);
    memcpy(h->lines[h->n].key, key, key_size);
    h->lines[h->n].value = value;
    h->lines[h->n].size = value_size;
    h->n++;
    return 0;
}

int
corpus_read_header(const char *bytes, size_t size, const char *keys, struct corpus_header *out,
                   struct error *err)
{
    const char *at = bytes, *end = bytes + size;
    const char *key, *value;
    size_t key_size, value_size;

    memset(out, 0, sizeof(*out));
    if (size >= 3 && memcmp(bytes, BYTE_ORDER_MARK, 3) == 0)
        at += 3;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        if (!split_line(at, stop, &key, &key_size, &value, &value_size))
            break;
        int rc = add_line(out, key, key_size, value, value_size, keys, err);
        if (rc < 0)
            return rc;
        at = newline ? newline + 1 : end;
    }
    out->end = (size_t)(at - bytes);
    return 0;
}

static bool
find_line(const struct corpus_header *h, const char *key, const char **value, size_t *size)
{
    for (size_t i = 0; i < h->n; i++)
        if (strcmp(h->lines[i].key, key) == 0) {
            *value = h->lines[i].value;
            *size = h->lines[i].size;
            return true;
        }
    return false;
}

static bool
is_text(const char *value, size_t size, const char *text)
{
    return strlen(text) == size && memcmp(value, text, size) == 0;
}

static int
read_needs(const struct corpus_header *h, bool *needs_gpu, struct error *err)
{
    const char *value;
    size_t size;

    *needs_gpu = find_line(h, "needs", &value, &size);
    if (*needs_gpu && !is_text(value, size, "gpu"))
        return error_set(err, ERR_INPUT, "needs: \"%.*s\", only \"gpu\" is known", (int)size, value);
    return 0;
}

/* "class=mismatch|hack stage=tiny" */
static int
read_expect(const char *value, size_t size, struct corpus_expectation *out, struct error *err)
{
    const char *end = value + size;
    while (value < end) {
        const char *stop = value;
        while (stop < end && !is_blank(*stop))
            stop++;
        size_t length = (size_t)(stop - value);
        int rc;
        if (length > 6 && memcmp(value, "class=", 6) == 0 && out->classes == 0)
            rc = read_set(corpus_class_bit, value + 6, length - 6, &out->classes, err);
        else if (length > 6 && memcmp(value, "stage=", 6) == 0 && out->stages == 0)
            rc = read_set(corpus_stage_bit, value + 6, length - 6, &out->stages, err);
        else
            rc = error_set(err, ERR_INPUT, "\"%.*s\" is neither class=... nor stage=..., or there twice",
                           (int)length, value);
        if (rc < 0) {
            error_prefix(err, "expect");
            return rc;
        }
        for (value = stop; value < end && is_blank(*value);)
            value++;
    }
    return 0;
}

static int
read_classes(const struct corpus_header *h, struct corpus_expectation *out, struct error *err)
{
    const char *value;
    size_t size;
    int rc = 0;

    bool has_expect = find_line(h, "expect", &value, &size);
    if (has_expect)
        rc = read_expect(value, size, out, err);
    if (rc == 0 && find_line(h, "class", &value, &size)) {
        if (has_expect)
            return error_set(err, ERR_INPUT, "both \"# class:\" and \"# expect:\", either says it");
        rc = read_set(corpus_class_bit, value, size, &out->classes, err);
        if (rc < 0)
            error_prefix(err, "class");
    }
    if (rc < 0)
        return rc;
    return out->classes
               ? 0
               : error_set(err, ERR_INPUT, "neither \"# class:\" nor \"# expect: class=...\" at its top");
}

static int
read_kind(const struct corpus_header *h, struct corpus_expectation *out, struct error *err)
{
    const char *value;
    size_t size;

    if (!find_line(h, "kind", &value, &size))
        return error_set(err, ERR_INPUT, "no \"# kind:\" at its top");
    for (int i = 0; i < CORPUS_KINDS; i++)
        if (is_text(value, size, kind_names[i])) {
            out->kind = (enum corpus_kind)i;
            return 0;
        }
    return error_set(err, ERR_INPUT,
                     "kind: \"%.*s\" is none of honest, suspicious, mistake, cheat, robustness", (int)size,
                     value);
}

int
corpus_read_expectation(const struct corpus_header *header, struct corpus_expectation *out, struct error *err)
{
    const unsigned ok = corpus_class_bit("ok");
    int rc;

    memset(out, 0, sizeof(*out));
    if ((rc = read_needs(header, &out->needs_gpu, err)) < 0 || (rc = read_classes(header, out, err)) < 0 ||
        (rc = read_kind(header, out, err)) < 0)
        return rc;
    bool is_right = out->kind == CORPUS_HONEST || out->kind == CORPUS_SUSPICIOUS;
    if (is_right && out->classes != ok)
        return error_set(err, ERR_INPUT, "kind %s, but its class is not \"ok\"", kind_names[out->kind]);
    if (out->kind == CORPUS_MISTAKE && (out->classes & ok))
        return error_set(err, ERR_INPUT, "kind %s, but class \"ok\" is among those expected",
                         kind_names[out->kind]);
    if (out->stages && out->classes == ok)
        return error_set(err, ERR_INPUT, "what passes names no stage where it fails");
    return 0;
}

/* --- files --- */

static bool
has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name), tail = strlen(suffix);
    return size > tail && strcmp(name + size - tail, suffix) == 0;
}

static int
is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "__pycache__") != 0;
}

static void
free_list(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

typedef int visit_fn(struct corpus *c, const char *directory, const char *name, struct error *err);

/* Call visit for each entry of a directory, in the order of the bytes of their names. */
static int
each_entry(struct corpus *c, const char *directory, visit_fn *visit, struct error *err)
{
    struct dirent **list;
    int n = scandir(directory, &list, is_visible, alphasort), rc = 0;

    if (n < 0)
        return error_set(err, ERR_SYS, "%s", directory);
    if (n > FILES_MAX)
        rc = error_set(err, ERR_INPUT, "%s: more than %d files", directory, FILES_MAX);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = visit(c, directory, list[i]->d_name, err);
    free_list(list, n);
    return rc;
}

/* A header's value as a string, or NULL. */
static json_t *
value_of(const struct corpus_header *h, const char *key)
{
    const char *value;
    size_t size;
    return find_line(h, key, &value, &size) ? json_stringn(value, size) : NULL;
}

static void *
grow(void *items, size_t n, size_t size)
{
    /* One by one in steps of powers of two. */
    if (n & (n - 1))
        return items;
    return realloc(items, (n ? 2 * n : 1) * size);
}

static int
fill_task(struct corpus_task *t, const struct corpus_header *h, json_t *source, struct error *err)
{
    const char *value;
    size_t size;
    int rc = read_needs(h, &t->needs_gpu, err);
    if (rc < 0)
        return rc;
    AUTO_JSON json_t *level = value_of(h, "level");
    int number = level ? atoi(json_string_value(level)) : 1;
    if (number < 1 || number > 99)
        return error_set(err, ERR_INPUT, "level: \"%s\" is not a number from 1 to 99",
                         json_string_value(level));
    AUTO_JSON json_t *kind = value_of(h, "kind");
    t->kind = strdup(kind ? json_string_value(kind) : "other");
    if (!t->kind)
        return error_set(err, ERR_NOMEM, "out of memory");
    t->registration = json_pack("{s:s, s:O, s:i}", "name", t->name, "reference", source, "level", number);
    if (!t->registration)
        return error_set(err, ERR_NOMEM, "out of memory");
    json_t *entry = value_of(h, "entry");
    if (entry)
        json_object_set_new(t->registration, "entry_point", entry);
    if (find_line(h, "dynamic_shapes", &value, &size) && is_text(value, size, "yes"))
        json_object_set_new(t->registration, "dynamic_shapes", json_true());
    return 0;
}

static int
add_task(struct corpus *c, const char *directory, const char *name, struct error *err)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT, bytes = BUFFER_INIT;
    struct corpus_header header;

    if (!has_suffix(name, ".py"))
        return 0;
    if (buffer_printf(&path, "%s/%s", directory, name) < 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    int rc = buffer_read_file(&bytes, path.data, FILE_MAX, err);
    if (rc < 0)
        return rc;
    void *more = grow(c->tasks, c->n_tasks, sizeof(*c->tasks));
    if (!more)
        return error_set(err, ERR_NOMEM, "out of memory");
    c->tasks = more;
    struct corpus_task *t = &c->tasks[c->n_tasks];
    memset(t, 0, sizeof(*t));
    c->n_tasks++;
    AUTO_JSON json_t *source = json_stringn(bytes.data ? bytes.data : "", bytes.size);
    t->name = strndup(name, strlen(name) - 3);
    if (!t->name)
        rc = error_set(err, ERR_NOMEM, "out of memory");
    else if (!source)
        rc = error_set(err, ERR_INPUT, "is not UTF-8 text");
    else if ((rc = corpus_read_header(bytes.data ? bytes.data : "", bytes.size, TASK_KEYS, &header, err)) ==
             0)
        rc = fill_task(t, &header, source, err);
    if (rc < 0)
        error_prefix(err, "%s", path.data);
    return rc;
}

static int
fill_candidate(struct corpus_candidate *k, const struct buffer *bytes, bool is_completion, struct error *err)
{
    struct corpus_header header;
    int rc = corpus_read_header(bytes->data ? bytes->data : "", bytes->size, CANDIDATE_KEYS, &header, err);
    if (rc == 0)
        rc = corpus_read_expectation(&header, &k->expected, err);
    if (rc < 0)
        return rc;
    size_t from = is_completion ? header.end : 0;
    json_t *text = json_stringn(bytes->data ? bytes->data + from : "", bytes->size - from);
    if (!text)
        return error_set(err, ERR_INPUT, "is not UTF-8 text");
    k->body = json_pack("{s:o}", is_completion ? "completion" : "candidate", text);
    json_t *policy = value_of(&header, "policy"), *entry = value_of(&header, "entry");
    if (policy)
        json_object_set_new(k->body, "policy", policy);
    if (entry)
        json_object_set_new(k->body, "entry_point", entry);
    json_t *what = value_of(&header, "what");
    if (!what)
        what = value_of(&header, "why");
    k->what = strdup(what ? json_string_value(what) : "");
    json_decref(what);
    return k->body && k->what ? 0 : error_set(err, ERR_NOMEM, "out of memory");
}

static const char *
base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int
add_candidate(struct corpus *c, const char *directory, const char *name, struct error *err)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT, bytes = BUFFER_INIT, label = BUFFER_INIT;
    bool is_completion = has_suffix(name, ".txt");
    const char *task = base_name(directory);

    if (!is_completion && !has_suffix(name, ".py"))
        return 0;
    size_t stem = strlen(name) - (is_completion ? 4 : 3);
    if (buffer_printf(&path, "%s/%s", directory, name) < 0 ||
        buffer_printf(&label, "%s/%.*s", task, (int)stem, name) < 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    int rc = buffer_read_file(&bytes, path.data, FILE_MAX, err);
    if (rc < 0)
        return rc;
    void *more = grow(c->candidates, c->n_candidates, sizeof(*c->candidates));
    if (!more)
        return error_set(err, ERR_NOMEM, "out of memory");
    c->candidates = more;
    struct corpus_candidate *k = &c->candidates[c->n_candidates++];
    memset(k, 0, sizeof(*k));
    k->label = buffer_take(&label, NULL);
    for (k->task = 0; k->task < c->n_tasks && strcmp(c->tasks[k->task].name, task) != 0;)
        k->task++;
    if (k->task == c->n_tasks)
        rc = error_set(err, ERR_INPUT, "there is no tasks/%s.py", task);
    else
        rc = fill_candidate(k, &bytes, is_completion, err);
    if (rc < 0)
        error_prefix(err, "%s", path.data);
    return rc;
}

static int
add_candidates(struct corpus *c, const char *directory, const char *name, struct error *err)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    struct stat st;

    if (buffer_printf(&path, "%s/%s", directory, name) < 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    if (stat(path.data, &st) < 0)
        return error_set(err, ERR_SYS, "%s", path.data);
    return S_ISDIR(st.st_mode) ? each_entry(c, path.data, add_candidate, err) : 0;
}

int
corpus_load(const char *directory, struct corpus **out, struct error *err)
{
    AUTO_BUFFER struct buffer tasks = BUFFER_INIT, candidates = BUFFER_INIT;
    struct corpus *c = calloc(1, sizeof(*c));

    *out = NULL;
    if (!c || buffer_printf(&tasks, "%s/tasks", directory) < 0 ||
        buffer_printf(&candidates, "%s/candidates", directory) < 0) {
        corpus_free(c);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    int rc = each_entry(c, tasks.data, add_task, err);
    if (rc == 0)
        rc = each_entry(c, candidates.data, add_candidates, err);
    if (rc == 0 && (c->n_tasks == 0 || c->n_candidates == 0))
        rc = error_set(err, ERR_INPUT, "%s: no %s there", directory, c->n_tasks ? "candidates" : "tasks");
    if (rc < 0) {
        corpus_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void
corpus_free(struct corpus *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_tasks; i++) {
        free(c->tasks[i].name);
        free(c->tasks[i].kind);
        json_decref(c->tasks[i].registration);
    }
    for (size_t i = 0; i < c->n_candidates; i++) {
        free(c->candidates[i].label);
        free(c->candidates[i].what);
        json_decref(c->candidates[i].body);
    }
    free(c->tasks);
    free(c->candidates);
    free(c);
}

ptrdiff_t
corpus_probe_of(const struct corpus *c, size_t task)
{
    ptrdiff_t first = -1;
    for (size_t i = 0; i < c->n_candidates; i++) {
        const struct corpus_candidate *k = &c->candidates[i];
        if (k->task != task || k->expected.kind != CORPUS_HONEST || !json_object_get(k->body, "candidate"))
            continue;
        if (strcmp(base_name(k->label), "honest") == 0)
            return (ptrdiff_t)i;
        if (first < 0)
            first = (ptrdiff_t)i;
    }
    return first;
}

ptrdiff_t
corpus_timed_task(const struct corpus *c)
{
    for (size_t i = 0; i < c->n_tasks; i++)
        if (c->tasks[i].needs_gpu && corpus_probe_of(c, i) >= 0)
            return (ptrdiff_t)i;
    return -1;
}

/* --- fresh bytes --- */

static int
mark_fences(struct buffer *out, const char *text, size_t size, const char *nonce)
{
    const char *end = text + size;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text)), *stop = newline ? newline + 1 : end;
        bool opens = newline && newline - text > 3 && memcmp(text, "```", 3) == 0;
        if (buffer_append(out, text, (size_t)(stop - text)) < 0 ||
            (opens && buffer_printf(out, "# %s\n", nonce) < 0))
            return -1;
        text = stop;
    }
    return 0;
}

json_t *
corpus_fresh_body(const struct corpus_candidate *candidate, const char *nonce)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    bool is_completion = json_object_get(candidate->body, "completion") != NULL;
    const char *key = is_completion ? "completion" : "candidate";
    json_t *old = json_object_get(candidate->body, key);
    const char *bytes = json_string_value(old);
    size_t size = json_string_length(old);
    int rc;

    if (is_completion)
        rc = mark_fences(&text, bytes, size, nonce);
    else
        rc = buffer_append(&text, bytes, size) < 0 || buffer_printf(&text, "\n# %s\n", nonce) < 0 ? -1 : 0;
    json_t *body = rc < 0 ? NULL : json_copy(candidate->body);
    if (body && json_object_set_new(body, key, json_stringn(text.data ? text.data : "", text.size)) < 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}
