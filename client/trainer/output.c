#include "client/trainer/output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int
make_directories(char *path, struct error *err)
{
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        int rc = mkdir(path, 0777);
        if (rc != 0 && errno != EEXIST)
            return error_set(err, ERR_SYS, "cannot make the directory %s", path);
        *at = '/';
    }
    return 0;
}

char *
output_last_part(const char *path)
{
    size_t end = strlen(path), start;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/';)
        start--;
    return strndup(path + start, end - start);
}

int
output_path(const char *workdir, const char *sub, const char *name, char path[OUTPUT_PATH_MAX],
            struct error *err)
{
    int n = snprintf(path, OUTPUT_PATH_MAX, "%s/%s/%s", workdir, sub, name);
    if (n < 0 || n >= OUTPUT_PATH_MAX)
        return error_set(err, ERR_INPUT, "the path %s/%s/%s is too long", workdir, sub, name);
    return make_directories(path, err);
}

int
output_begin(struct output *o, const char *path, struct error *err)
{
    snprintf(o->path, sizeof(o->path), "%s", path);
    snprintf(o->partial, sizeof(o->partial), "%s.part", path);
    o->is_bad = false;
    o->file = fopen(o->partial, "w");
    return o->file ? 0 : error_set(err, ERR_SYS, "cannot write %s", o->partial);
}

void
output_line(struct output *o, json_t *document)
{
    o->is_bad = json_dumpf(document, o->file, JSON_COMPACT) != 0 || putc('\n', o->file) == EOF || o->is_bad;
}

int
output_end(struct output *o, struct error *err)
{
    bool is_bad =
        o->is_bad || ferror(o->file) != 0 || fflush(o->file) != 0 || fdatasync(fileno(o->file)) != 0;
    is_bad = fclose(o->file) != 0 || is_bad;
    o->file = NULL;
    if (!is_bad && rename(o->partial, o->path) == 0)
        return 0;
    int rc = error_set(err, ERR_SYS, "cannot write %s", o->path);
    unlink(o->partial);
    return rc;
}

void
output_cancel(struct output *o)
{
    if (!o->file)
        return;
    fclose(o->file);
    unlink(o->partial);
    o->file = NULL;
}

int
output_document(const char *path, json_t *document, struct error *err)
{
    struct output o;
    int rc = output_begin(&o, path, err);
    if (rc != 0)
        return rc;
    o.is_bad = json_dumpf(document, o.file, JSON_INDENT(2)) != 0 || putc('\n', o.file) == EOF;
    return output_end(&o, err);
}
