#include "client/trainer/run_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/trainer/manifest.h"

const char *
run_path(const struct run *r, const char *path, char full[PATH_MAX])
{
    if (*path == '/')
        return path;
    if (snprintf(full, PATH_MAX, "%s/%s", r->workdir, path) >= PATH_MAX)
        full[PATH_MAX - 1] = '\0';
    return full;
}

static bool
is_checkpoint(const char *path)
{
    const char *at = strstr(path, "checkpoints/");
    return at && !strchr(at + strlen("checkpoints/"), '/');
}

int
run_path_check(const struct run *r, const char *path, struct error *err)
{
    char full[PATH_MAX];
    struct stat st;
    const char *where = run_path(r, path, full);
    if (stat(where, &st) != 0)
        return error_set(err, ERR_NOTFOUND, "%.300s is not there", where);
    if (is_checkpoint(path))
        return manifest_verify(where, NULL, err);
    return 0;
}

/* Of a checkpoint its weights: what a manifest says of when it was written is nothing that a step reads. */
int
run_path_digest(const struct run *r, const char *path, char digest[80], struct error *err)
{
    char full[PATH_MAX], file[PATH_MAX + 32];
    const char *where = run_path(r, path, full);
    if (!is_checkpoint(path))
        return manifest_digest(where, digest, err);
    snprintf(file, sizeof(file), "%s/adapter_model.safetensors", where);
    return manifest_digest(file, digest, err);
}

bool
run_is_made(const struct run *r, const char *path)
{
    size_t i, k;
    json_t *step, *one;
    char full[PATH_MAX], other[PATH_MAX];
    json_array_foreach(r->steps, i, step)
        json_array_foreach(json_object_get(step, "outputs"), k,
                           one) if (strcmp(run_path(r, path, full),
                                           run_path(r, json_string_value(one), other)) == 0) return true;
    return false;
}
