#include "client/trainer/runconf.h"

#include <assert.h>
#include <confuse.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/settings.h"
#include "common/auto.h"
#include "common/buffer.h"

#define OPTIONS_MAX 128

/* A row of settings.json each: settings_put() checks them all alike. */
static const char own_rows[] = "["
#define ROW(section, name, type, preset, more) \
    "{\"section\":\"" section "\",\"name\":\"" name "\",\"type\":\"" type "\",\"default\":" preset more "},"
#define TEXT(section, name, preset) ROW(section, name, "text", "\"" preset "\"", "")
#define FLAG(section, name, preset) ROW(section, name, "bool", preset, "")
#define INT(section, name, preset, low, high) \
    ROW(section, name, "int", preset, ",\"min\":" low ",\"max\":" high)
#define NUMBER(section, name, preset, low, high) \
    ROW(section, name, "float", preset, ",\"min\":" low ",\"max\":" high)
#define CHOICE(section, name, preset, words) \
    ROW(section, name, "choice", "\"" preset "\"", ",\"choices\":\"" words "\"")
    /* clang-format off */
    TEXT("", "model", "Qwen/Qwen2.5-Coder-7B-Instruct")
    TEXT("", "model_config", "")
    TEXT("", "python", "")
    TEXT("", "workdir", "")
    INT("", "gpus", "1", "1", "1024")
    TEXT("", "devices", "")
    NUMBER("", "gpu_memory_gb", "0", "0", "10000")
    NUMBER("", "gpu_price", "0", "0", "10000")
    INT("", "seed", "0", "0", "2147483647")
    TEXT("verifier", "url", "")
    TEXT("verifier", "devices", "")
    FLAG("verifier", "selftest", "true")
    TEXT("endpoint", "url", "")
    TEXT("endpoint", "start", "")
    TEXT("endpoint", "model", "")
    FLAG("endpoint", "keep", "false")
    INT("endpoint", "wait_s", "900", "1", "86400")
    NUMBER("endpoint", "temperature", "0.8", "0", "10")
    INT("endpoint", "max_tokens", "2048", "1", "1000000")
    INT("endpoint", "concurrency", "8", "1", "64")
    TEXT("prepare", "file", "")
    TEXT("prepare", "source", "")
    TEXT("prepare", "overlap", "")
    TEXT("prepare", "licenses", "")
    INT("prepare", "max_samples", "1000", "0", "100000000")
    FLAG("prepare", "static", "false")
    FLAG("prepare", "verify", "true")
    CHOICE("rl", "method", "bestofn", "bestofn weighted reinforce grpo")
    INT("rl", "rounds", "3", "1", "10000")
    TEXT("rl", "tasks", "data/processed/tasks.jsonl")
    INT("rl", "fused", "0", "0", "1000")
    INT("rl", "max_tasks", "100", "1", "1000000")
    INT("rl", "level", "2", "0", "4")
    INT("rl", "samples", "10", "1", "256")
    INT("rl", "keep", "3", "1", "256")
    TEXT("rl", "curriculum", "")
    NUMBER("rl", "mix", "0.5", "0", "1")
    TEXT("rl", "held_out", "")
    INT("rl", "held_out_tasks", "50", "1", "1000000")
    TEXT("rl", "reward", "staged")
    TEXT("rl", "policy", "")
    TEXT("rl", "until", "")
    TEXT("evaluate", "source", "")
    TEXT("evaluate", "tasks", "")
    INT("evaluate", "level", "2", "0", "4")
    INT("evaluate", "max_tasks", "20", "0", "1000000")
    TEXT("evaluate", "published", "")
    INT("evaluate", "samples", "1", "1", "256")
    TEXT("evaluate", "policy", "")
    TEXT("evaluate", "until", "")
    TEXT("teacher", "url", "")
    TEXT("teacher", "model", "")
    INT("teacher", "samples", "4", "1", "256")
    TEXT("sync", "remote", "")
    INT("sync", "every_s", "600", "1", "86400")
    TEXT("sync", "engine", "rclone")
    TEXT("watch", "clouds", "")
    NUMBER("watch", "every_s", "5", "0.05", "3600")
    NUMBER("estimate", "train_tokens_per_s", "4000", "1", "1e9")
    NUMBER("estimate", "sample_tokens_per_s", "2000", "1", "1e9")
    NUMBER("estimate", "verdicts_per_s", "1", "0.001", "1e6")
    NUMBER("estimate", "row_tokens", "2500", "1", "1e7")
    "{}]";
/* clang-format on */

static const char *const methods[] = { "bestofn", "weighted", "reinforce", "grpo" };
static const char *const sections[] = { "verifier", "endpoint", "prepare",  "sft",       "rl",
                                        "train",    "bestofn",  "weighted", "reinforce", "grpo",
                                        "evaluate", "sync",     "watch",    "estimate",  "teacher" };

static bool
is_method(const char *section)
{
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (strcmp(methods[i], section) == 0)
            return true;
    return false;
}

static const char *
text_of(json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

json_t *
runconf_get(json_t *conf, const char *section, const char *key)
{
    json_t *in = *section ? json_object_get(conf, section) : conf;
    json_t *value = json_object_get(in, key);
    assert(value);
    return value;
}

const char *
runconf_text(json_t *conf, const char *section, const char *key)
{
    return json_string_value(runconf_get(conf, section, key));
}

double
runconf_number(json_t *conf, const char *section, const char *key)
{
    return json_number_value(runconf_get(conf, section, key));
}

/* --- the file --- */

struct reading {
    const char *path;
    json_t *own, *table, *conf;
    struct error *err;
};
static _Thread_local struct reading *reading; /* libconfuse hands nothing to its callbacks */

static void __attribute__((format(printf, 2, 0))) file_error_cb(cfg_t *cfg, const char *format, va_list args)
{
    char text[200];
    vsnprintf(text, sizeof(text), format, args);
    if (reading->err->code == ERR_NONE)
        error_set(reading->err, ERR_INPUT, "%s:%d: %s", reading->path, cfg->line, text);
}

/* The rows of a section: run's own, or the training's settings. Both arrays are borrowed; out has room for OPTIONS_MAX. */
static size_t
rows_of(const char *section, json_t *own, json_t *table, json_t **out)
{
    bool is_training = strcmp(section, "sft") == 0 || strcmp(section, "train") == 0 || is_method(section);
    size_t n = 0, i;
    json_t *row;
    json_array_foreach(is_training ? table : own, i, row)
    {
        bool is_here =
            json_object_get(row, "name") && (is_training || strcmp(text_of(row, "section"), section) == 0);
        if (is_here && n < OPTIONS_MAX - 1)
            out[n++] = row;
    }
    return n;
}

/* A key of the file was read, in this line: check its value and keep it. */
static int
put_cb(cfg_t *cfg, cfg_opt_t *option)
{
    const char *section = strcmp(cfg_name(cfg), "root") == 0 ? "" : cfg_name(cfg);
    json_t *rows[OPTIONS_MAX], *into = *section ? json_object_get(reading->conf, section) : reading->conf;
    size_t n = rows_of(section, reading->own, reading->table, rows);
    struct error why = { 0 };

    for (size_t i = 0; i < n; i++)
        if (strcmp(text_of(rows[i], "name"), cfg_opt_name(option)) == 0 &&
            settings_put(into, rows[i], cfg_opt_getnstr(option, 0), &why) != 0)
            error_set(reading->err, ERR_INPUT, "%s:%d: %s%s%s", reading->path, cfg->line, section,
                      *section ? "." : "", why.text);
    return reading->err->code == ERR_NONE ? 0 : -1;
}

static size_t
options_of(json_t **rows, size_t n, cfg_opt_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const cfg_opt_t option =
            CFG_STR(json_string_value(json_object_get(rows[i], "name")), NULL, CFGF_NODEFAULT);
        out[i] = option;
        out[i].validcb = put_cb;
    }
    const cfg_opt_t end = CFG_END();
    out[n] = end;
    return n;
}

/* What the file does not say. method: of "sft" and "train". */
static void
fill(json_t *into, json_t **rows, size_t n, const char *method)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = text_of(rows[i], "name");
        if (!json_object_get(into, name))
            json_object_set(into, name,
                            method ? settings_default(rows[i], method) : json_object_get(rows[i], "default"));
    }
}

static int
parse(struct reading *now)
{
    cfg_opt_t parts[ARRAY_LEN(sections)][OPTIONS_MAX], top[OPTIONS_MAX + ARRAY_LEN(sections)];
    json_t *rows[OPTIONS_MAX];
    size_t n = options_of(rows, rows_of("", now->own, now->table, rows), top);

    for (size_t s = 0; s < ARRAY_LEN(sections); s++) {
        options_of(rows, rows_of(sections[s], now->own, now->table, rows), parts[s]);
        const cfg_opt_t section = CFG_SEC(sections[s], parts[s], CFGF_NONE);
        top[n++] = section;
        json_object_set_new(now->conf, sections[s], json_object());
    }
    const cfg_opt_t end = CFG_END();
    top[n] = end;
    cfg_t *cfg = cfg_init(top, CFGF_NONE);
    if (!cfg)
        return error_set(now->err, ERR_NOMEM, "out of memory");
    cfg_set_error_function(cfg, file_error_cb);
    reading = now;
    int rc = cfg_parse(cfg, now->path);
    reading = NULL;
    cfg_free(cfg);
    if (rc != CFG_SUCCESS && now->err->code == ERR_NONE)
        error_set(now->err, rc == CFG_FILE_ERROR ? ERR_SYS : ERR_INPUT, "cannot read %s", now->path);
    return now->err->code;
}

/* libconfuse puts nothing where a variable is not set, and a run then goes wrong far from the cause. at: of "${". */
static int
check_variable(const char *path, int line, const char *at, struct error *err)
{
    char name[128];
    const char *end = strpbrk(at, ":}\n");

    if (!end || *end != '}') /* ${NAME:-otherwise}, or no variable at all: libconfuse's to judge */
        return 0;
    snprintf(name, sizeof(name), "%.*s", (int)(end - at - 2), at + 2);
    return getenv(name)
               ? 0
               : error_set(err, ERR_INPUT, "%s:%d: ${%s} is not set in the environment", path, line, name);
}

/* Past the comment at `at`, which is at its end then, or where it was. line goes on. */
static const char *
skip_comment(const char *text, const char *at, int *line)
{
    bool is_token = at == text || strchr(" \t\n={}(),+\"'", at[-1]);

    if (is_token && (*at == '#' || strncmp(at, "//", 2) == 0))
        return at + strcspn(at, "\n");
    if (!is_token || strncmp(at, "/*", 2) != 0)
        return at;
    const char *end = strstr(at + 2, "*/");
    for (; *at && at != end; at++)
        *line += *at == '\n';
    return at + (end ? 2 : 0);
}

/* As libconfuse replaces variables: not in comments, not in single quotes, not where a backslash stands before them. */
static int
check_variables(const char *path, const char *text, struct error *err)
{
    char quote = '\0';
    int line = 1, rc = 0;

    for (const char *at = text; *at && rc == 0; at++) {
        if (!quote)
            at = skip_comment(text, at, &line);
        if (quote && *at == '\\' && at[1])
            at++;
        else if ((*at == '"' || *at == '\'') && (!quote || quote == *at))
            quote = quote ? '\0' : *at;
        else if (quote != '\'' && strncmp(at, "${", 2) == 0)
            rc = check_variable(path, line, at, err);
        line += *at == '\n';
        if (!*at)
            break;
    }
    return rc;
}

static int
check_environment(const char *path, struct error *err)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    FILE *file = fopen(path, "re");
    char block[4096];
    size_t n;
    int rc = 0;

    if (!file)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    while (rc == 0 && (n = fread(block, 1, sizeof(block), file)) > 0)
        rc = buffer_append(&text, block, n);
    fclose(file);
    if (rc != 0)
        return error_set(err, ERR_NOMEM, "no memory to read %s", path);
    return text.size > 0 ? check_variables(path, text.data, err) : 0;
}

int
runconf_read(const char *path, json_t **out, struct error *err)
{
    AUTO_JSON json_t *own = json_loads(own_rows, 0, NULL), *table = settings_table(), *conf = json_object();
    json_t *rows[OPTIONS_MAX];

    *out = NULL;
    assert(own && table);
    if (check_environment(path, err) != 0)
        return err->code;
    struct reading now = { path, own, table, conf, err };
    if (parse(&now) != 0)
        return err->code;
    json_t *named = json_object_get(json_object_get(conf, "rl"), "method");
    const char *method = named ? json_string_value(named) : "bestofn";
    json_object_update(json_object_get(conf, "train"), json_object_get(conf, method));
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        json_object_del(conf, methods[i]);
    fill(conf, rows, rows_of("", own, table, rows), NULL);
    for (size_t s = 0; s < ARRAY_LEN(sections); s++) {
        bool is_sft = strcmp(sections[s], "sft") == 0, is_train = strcmp(sections[s], "train") == 0;
        if (!is_method(sections[s]))
            fill(json_object_get(conf, sections[s]), rows, rows_of(sections[s], own, table, rows),
                 is_sft     ? "sft"
                 : is_train ? method
                            : NULL);
    }
    *out = json_incref(conf);
    return 0;
}
