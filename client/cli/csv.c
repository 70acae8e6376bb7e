#include "client/cli/csv.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/error.h"
#include "common/utf8.h"

/*
 * Columns are paths into a row, between commas; a path's parts are separated by slashes. They are never renamed or moved:
 * new ones go to the end.
 */
static const struct {
    const char *name, *columns;
} tables[CSV_TABLES] = {
    [CSV_SUBMISSIONS] = { "submissions",
                          "id,group,group_index,task,task_name,client,priority,state,class,stage,reward,"
                          "policy,"
                          "until,entry_point,source,passed_stage,failed_at,attempts,created,finished,flags,"
                          "metadata" },
    [CSV_VERDICTS] = { "verdicts",
                       "id,group,group_index,task,task_name,client,class,rule,stage,passed_stage,failed_at,"
                       "generality,reward,flags,policy,correctness/cases,correctness/passed,"
                       "correctness/max_abs,correctness/max_rel,timing/outcome,timing/why,timing/trials,"
                       "timing/reference_ms,timing/candidate_ms,timing/speedup,timing/speedup_lo,"
                       "timing/speedup_hi,components/coverage,error/type,error/line,feedback/text,env/gpu,"
                       "env/driver,env/torch,env/triton,attempts,seed,source,created,finished" },
    [CSV_REWARDS] = { "rewards",
                      "id,group,group_index,task,task_name,client,class,reward,reward_spec/kind,"
                      "reward_spec/version,components/extracted,components/valid,components/compiled,"
                      "components/correct,components/hack,components/timed,components/speedup,"
                      "components/speedup_lo,components/speedup_hi,components/coverage,components/sol,"
                      "components/rank,components/peak_mem_ratio,components/cases_passed,created,finished" },
};

int
csv_find(const char *name)
{
    for (int i = 0; i < CSV_TABLES; i++)
        if (strcmp(tables[i].name, name) == 0)
            return i;
    return -1;
}

static uint32_t
decode(const char *s, size_t size)
{
    const unsigned char *u = (const unsigned char *)s;
    uint32_t c = size == 1 ? u[0] : u[0] & (0x7fU >> size);

    for (size_t i = 1; i < size; i++)
        c = c << 6 | (u[i] & 0x3fU);
    return c;
}

/* Characters that move a cursor, end a line, or show text in another order than it has. */
static bool
is_acting(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x2028 || c == 0x2029 || c == 0x200e || c == 0x200f ||
           c == 0x061c || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

/* Whether a spreadsheet may take it for a formula: also after blanks, and by the full-width forms. */
static bool
is_formula(const char *text)
{
    static const char *const wide[] = { "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0" };

    text += strspn(text, " ");
    for (size_t i = 0; i < ARRAY_LEN(wide); i++)
        if (strncmp(text, wide[i], strlen(wide[i])) == 0)
            return true;
    return *text && strchr("=+-@\t\r\n|%", *text);
}

static void
add_character(struct buffer *out, const char *s, size_t size)
{
    uint32_t c = decode(s, size);

    if (is_acting(c))
        buffer_printf(out, "\\u%04x", (unsigned)c);
    else if (c == '"')
        buffer_add(out, "\"\"");
    else
        buffer_append(out, s, size);
}

static void
add_text(struct buffer *out, const char *text, size_t n)
{
    buffer_add(out, is_formula(text) ? "\"'" : "\"");
    for (size_t i = 0; i < n;) {
        size_t size = utf8_char_size(text + i, n - i);
        add_character(out, size ? text + i : "?", size ? size : 1);
        i += size ? size : 1;
    }
    buffer_add(out, "\"");
}

static int
add_cell(struct buffer *out, json_t *value)
{
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_NULL:
        return 0;
    case JSON_TRUE:
        return buffer_add(out, "true");
    case JSON_FALSE:
        return buffer_add(out, "false");
    case JSON_INTEGER:
        return buffer_printf(out, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return buffer_printf(out, "%.15g", json_real_value(value));
    case JSON_STRING:
        add_text(out, json_string_value(value), json_string_length(value));
        return 0;
    default: {
        AUTO_FREE char *text = json_dumps(value, JSON_COMPACT);
        if (text)
            add_text(out, text, strlen(text));
        return text ? 0 : ERR_NOMEM;
    }
    }
}

/* The value at a path, which ends at a comma, too. */
static json_t *
at(json_t *document, const char *path)
{
    char key[32];

    for (; *path && *path != ',' && document; path += *path == '/') {
        size_t size = strcspn(path, "/,");
        snprintf(key, sizeof(key), "%.*s", (int)size, path);
        document = json_object_get(document, key);
        path += size;
    }
    return document;
}

int
csv_titles(struct buffer *out, enum csv_table table)
{
    for (const char *c = tables[table].columns; *c; c++)
        buffer_append(out, *c == '/' ? "_" : c, 1);
    return buffer_add(out, "\r\n");
}

int
csv_row(struct buffer *out, enum csv_table table, json_t *document)
{
    for (const char *path = tables[table].columns; *path;) {
        if (add_cell(out, at(document, path)) != 0)
            return ERR_NOMEM;
        path += strcspn(path, ",");
        if (*path)
            buffer_append(out, path++, 1);
    }
    return buffer_add(out, "\r\n");
}
