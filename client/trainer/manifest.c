#include "client/trainer/manifest.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "common/auto.h"

int
manifest_digest(const char *path, char out[80], struct error *err)
{
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES], block[65536];
    size_t n;
    FILE *file = fopen(path, "rb");

    if (!file)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    crypto_hash_sha256_init(&state);
    while ((n = fread(block, 1, sizeof(block), file)) > 0)
        crypto_hash_sha256_update(&state, block, n);
    int failed = ferror(file);
    fclose(file);
    if (failed)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    crypto_hash_sha256_final(&state, digest);
    strcpy(out, "sha256:");
    sodium_bin2hex(out + 7, 65, digest, sizeof(digest));
    return 0;
}

static int
check_file(const char *directory, const char *name, json_t *expected, struct error *err)
{
    char path[PATH_MAX], digest[80];
    const char *wanted = json_string_value(json_object_get(expected, "digest"));
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (strstr(name, "..") || stat(path, &st) != 0)
        return error_set(err, ERR_INPUT, "%s: %s is missing", directory, name);
    if (st.st_size != json_integer_value(json_object_get(expected, "size")))
        return error_set(err, ERR_INPUT, "%s: %s has %lld bytes, not %lld", directory, name,
                         (long long)st.st_size,
                         (long long)json_integer_value(json_object_get(expected, "size")));
    int rc = manifest_digest(path, digest, err);
    if (rc == 0 && (!wanted || strcmp(digest, wanted) != 0))
        return error_set(err, ERR_INPUT, "%s: %s is not what was written", directory, name);
    return rc;
}

int
manifest_verify(const char *directory, json_t **out, struct error *err)
{
    char path[PATH_MAX];
    const char *name;
    json_t *expected;
    int rc = 0;

    if (out)
        *out = NULL;
    snprintf(path, sizeof(path), "%s/manifest.json", directory);
    AUTO_JSON json_t *manifest = json_load_file(path, 0, NULL);
    if (!manifest)
        return error_set(err, ERR_NOTFOUND, "%s is no checkpoint: it has no manifest.json that can be read",
                         directory);
    json_t *files = json_object_get(manifest, "files");
    if (!json_is_object(files) || json_object_size(files) == 0)
        return error_set(err, ERR_INPUT, "%s: its manifest names no files", directory);
    json_object_foreach(files, name, expected)
    {
        rc = check_file(directory, name, expected, err);
        if (rc != 0)
            return rc;
    }
    if (out)
        *out = json_incref(manifest);
    return 0;
}

int
manifest_drop_damaged(const char *directory)
{
    char path[PATH_MAX];
    const char *name;
    json_t *expected;
    int dropped = 0;

    snprintf(path, sizeof(path), "%s/manifest.json", directory);
    AUTO_JSON json_t *manifest = json_load_file(path, 0, NULL);
    json_object_foreach(json_object_get(manifest, "files"), name, expected)
    {
        struct error why = { 0 };
        snprintf(path, sizeof(path), "%s/%s", directory, name);
        if (check_file(directory, name, expected, &why) == 0 || strstr(name, ".."))
            continue;
        fprintf(stderr, "trainer: %s\n", why.text);
        unlink(path);
        dropped++;
    }
    return dropped;
}
