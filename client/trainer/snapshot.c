#include "client/trainer/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trainer/manifest.h"
#include "client/trainer/output.h"
#include "common/auto.h"

/* ENOENT: there is no such file, and nothing was written. */
static int
copy_file(const char *from, const char *to)
{
    AUTO_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return -1;
    AUTO_FD int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    char block[65536];
    ssize_t n = 0, written = 0;
    while (out >= 0 && (n = read(in, block, sizeof(block))) > 0)
        for (ssize_t at = 0; at < n; at += written)
            if ((written = write(out, block + at, (size_t)(n - at))) < 0)
                return -1;
    return out < 0 || n < 0 ? -1 : 0;
}

/* root/path to stage/part/path; by a hard link where its bytes never change. ERR_NOTFOUND: it is gone meanwhile. */
static int
stage_file(struct snapshot *s, const char *part, const char *path, bool is_link, struct error *err)
{
    char from[PATH_MAX], to[OUTPUT_PATH_MAX], sub[OUTPUT_PATH_MAX];
    if (snprintf(from, sizeof(from), "%s/%s", s->root, path) >= (int)sizeof(from) ||
        snprintf(sub, sizeof(sub), ".sync/%s", part) >= (int)sizeof(sub))
        return error_set(err, ERR_INPUT, "the path %.100s is too long", path);
    int rc = output_path(s->root, sub, path, to, err);
    if (rc != 0)
        return rc;
    if (is_link && link(from, to) == 0)
        return 0;
    if (copy_file(from, to) == 0)
        return 0;
    return errno == ENOENT ? ERR_NOTFOUND : error_set(err, ERR_SYS, "cannot copy %s", from);
}

void
snapshot_remove(const struct snapshot *s)
{
    output_remove_tree(s->stage);
}

/* One checkpoint, unless the remote has it. What does not verify is left out, and told. */
static int
stage_checkpoint(struct snapshot *s, const char *path, json_t *now, struct error *err)
{
    char full[PATH_MAX], file[PATH_MAX], digest[80];
    const char *name;
    json_t *expected;
    struct error why = { 0 };
    AUTO_JSON json_t *manifest = NULL;

    snprintf(full, sizeof(full), "%.3000s/%.1000s", s->root, path);
    snprintf(file, sizeof(file), "%.4000s/manifest.json", full);
    if (access(file, F_OK) != 0 || manifest_digest(file, digest, &why) != 0)
        return 0;
    const char *sent = json_string_value(json_object_get(s->sent, path));
    if (sent && strcmp(sent, digest) == 0)
        return 0;
    if (manifest_verify(full, &manifest, &why) != 0) {
        fprintf(stderr, "trainer: not copied: %s\n", why.text);
        return 0;
    }
    int rc = 0;
    json_object_foreach(json_object_get(manifest, "files"), name, expected)
    {
        snprintf(file, sizeof(file), "%.2000s/%.1000s", path, name);
        rc = rc == 0 ? stage_file(s, "data", file, true, err) : rc;
    }
    snprintf(file, sizeof(file), "%.3000s/manifest.json", path);
    rc = rc == 0 ? stage_file(s, "manifests", file, true, err) : rc;
    if (rc == 0)
        json_object_set_new(now, path, json_string(digest));
    return rc == ERR_NOTFOUND ? 0 : rc; /* it is being pruned: data without a manifest is no checkpoint */
}

/* Everything that matches below root, each by its path there. */
static int
each_match(struct snapshot *s, const char *pattern,
           int (*take)(struct snapshot *, const char *, json_t *, struct error *), json_t *into,
           struct error *err)
{
    char full[PATH_MAX];
    glob_t found;
    int rc = 0;
    snprintf(full, sizeof(full), "%.3000s/%.500s", s->root, pattern);
    if (glob(full, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && rc == 0; i++)
            rc = take(s, found.gl_pathv[i] + strlen(s->root) + 1, into, err);
    globfree(&found);
    return rc;
}

static int
stage_plain(struct snapshot *s, const char *path, json_t *into, struct error *err)
{
    char full[PATH_MAX];
    struct stat st;
    (void)into;
    snprintf(full, sizeof(full), "%.3000s/%.1000s", s->root, path);
    if (stat(full, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    int rc = stage_file(s, "data", path, false, err);
    return rc == ERR_NOTFOUND ? 0 : rc;
}

static int
stage_latest(struct snapshot *s, const char *path, json_t *into, struct error *err)
{
    (void)into;
    int rc = stage_file(s, "latest", path, false, err);
    return rc == ERR_NOTFOUND ? 0 : rc;
}

int
snapshot_take(struct snapshot *s, json_t *now, struct error *err)
{
    static const char *const plain[] = {
        "run.json",    "training.log",     "checkpoints/curriculum.json", "outputs/*",
        "outputs/*/*", "data/processed/*", "evaluation/data/processed/*"
    };
    int rc = 0;
    snapshot_remove(s);
    rc = each_match(s, "checkpoints/*/step-*", stage_checkpoint, now, err);
    rc = rc == 0 ? each_match(s, "checkpoints/*", stage_checkpoint, now, err) : rc;
    for (size_t i = 0; i < ARRAY_LEN(plain) && rc == 0; i++)
        rc = each_match(s, plain[i], stage_plain, now, err);
    rc = rc == 0 ? each_match(s, "checkpoints/*/latest", stage_latest, now, err) : rc;
    return rc == 0 ? each_match(s, "checkpoints/latest", stage_latest, now, err) : rc;
}
