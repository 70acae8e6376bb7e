#include "server/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <sodium.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"

/*
 * Theory of operation. The file is replaced whole, by rename, under a lock
 * file, so a reader sees the old one or the new one. It is not in the
 * database, since only one process may write there and a token has to be made
 * and revoked while the daemon runs.
 *
 * A secret has 256 random bits, so a plain hash is enough: a slow one would
 * only protect a secret that can be guessed.
 */

#define FILE_BYTES_MAX (8 * 1024 * 1024)

/* --- scopes and names --- */

static const struct {
    const char *name;
    enum scope scope;
} scope_names[] = { { "submit", SCOPE_SUBMIT }, { "read", SCOPE_READ }, { "admin", SCOPE_ADMIN } };

static unsigned
scope_find(const char *word, size_t size)
{
    for (size_t i = 0; i < ARRAY_LEN(scope_names); i++)
        if (strlen(scope_names[i].name) == size && strncmp(scope_names[i].name, word, size) == 0)
            return scope_names[i].scope;
    return 0;
}

int
scopes_parse(const char *text, unsigned *out, struct error *err)
{
    *out = 0;
    for (const char *at = text;; at++) {
        size_t size = strcspn(at, ",");
        unsigned scope = scope_find(at, size);
        if (!scope)
            return error_set(err, ERR_INPUT, "\"%.*s\" is no scope: submit, read, admin", (int)size, at);
        *out |= scope;
        at += size;
        if (!*at)
            return 0;
    }
}

void
scopes_text(unsigned scopes, char out[SCOPES_TEXT_SIZE])
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(scope_names); i++)
        if (scopes & scope_names[i].scope)
            used += (size_t)snprintf(out + used, SCOPES_TEXT_SIZE - used, "%s%s", used ? "," : "",
                                     scope_names[i].name);
}

bool
token_name_is_valid(const char *name)
{
    size_t size = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return size > 0 && size < TOKEN_NAME_SIZE && !name[size];
}

/* --- reading --- */

void
token_list_release(struct token_list *list)
{
    free(list->rows);
    *list = (struct token_list){ 0 };
}

static int
read_scopes(json_t *words, const char *base, unsigned *out, struct json_fault *fault)
{
    json_t *word;
    size_t i;

    *out = 0;
    json_array_foreach(words, i, word)
    {
        const char *text = json_string_value(word);
        unsigned scope = text ? scope_find(text, strlen(text)) : 0;
        if (!scope)
            return json_refuse(fault, base, "has a scope that is none of submit, read, admin");
        *out |= scope;
    }
    return *out ? 0 : json_refuse(fault, base, "has no scope");
}

static int
read_token(json_t *item, const char *base, struct token *out, struct json_fault *fault)
{
    const char *name = NULL, *client = NULL, *hash = NULL;
    json_t *scopes = NULL;
    size_t size = 0;
    const struct json_field fields[] = {
        { "name", JSON_WANT_STRING, &name, true, 0, 0 },
        { "client", JSON_WANT_STRING, &client, true, 0, 0 },
        { "scopes", JSON_WANT_ARRAY, &scopes, true, 0, 0 },
        { "hash", JSON_WANT_STRING, &hash, true, 0, 0 },
        { "created_ms", JSON_WANT_INT, &out->created_ms, true, 0, 1e15 },
        { "expires_ms", JSON_WANT_INT, &out->expires_ms, false, 0, 1e15 },
    };

    if (json_read(item, base, fields, ARRAY_LEN(fields), fault) != 0)
        return ERR_INPUT;
    if (!token_name_is_valid(name) || !token_name_is_valid(client))
        return json_refuse(fault, base, "has a name or client that is not 1 to 64 of A-Z a-z 0-9 . _ -");
    if (sodium_hex2bin(out->hash, sizeof(out->hash), hash, strlen(hash), NULL, &size, NULL) != 0 ||
        size != sizeof(out->hash) || strlen(hash) != 2 * size)
        return json_refuse(fault, base, "has a hash that is not 64 hexadecimal digits");
    snprintf(out->name, sizeof(out->name), "%s", name);
    snprintf(out->client, sizeof(out->client), "%s", client);
    return read_scopes(scopes, base, &out->scopes, fault);
}

static int
read_tokens(json_t *document, struct token_list *out, struct json_fault *fault)
{
    json_t *items = NULL, *item;
    char base[32];
    size_t i;
    const struct json_field fields[] = { { "tokens", JSON_WANT_ARRAY, &items, true, 0, 0 } };

    if (json_read(document, "", fields, ARRAY_LEN(fields), fault) != 0)
        return ERR_INPUT;
    if (json_array_size(items) > TOKENS_MAX)
        return json_refuse(fault, "/tokens", "has more than %d tokens", TOKENS_MAX);
    out->rows = calloc(json_array_size(items) + 1, sizeof(*out->rows));
    if (!out->rows)
        return ERR_NOMEM;
    json_array_foreach(items, i, item)
    {
        snprintf(base, sizeof(base), "/tokens/%zu", i);
        if (read_token(item, base, &out->rows[i], fault) != 0)
            return ERR_INPUT;
        out->n = i + 1;
    }
    return 0;
}

/* A file that other users may write is refused as a list of tokens. */
static int
read_bytes(const char *path, struct buffer *out, struct stat *status, struct error *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && errno == ENOENT)
        return error_set(err, ERR_NOTFOUND, "%s: there is no such file", path);
    if (fd < 0 || fstat(fd, status) != 0)
        return error_set(err, ERR_SYS, "open %s", path);
    if (!S_ISREG(status->st_mode) || status->st_size > FILE_BYTES_MAX)
        return error_set(err, ERR_INPUT, "%s: not a file of at most %d bytes", path, FILE_BYTES_MAX);
    if (status->st_mode & 022)
        return error_set(err, ERR_INPUT, "%s: others may write it (mode %03o): make it 600", path,
                         (unsigned)status->st_mode & 0777);
    if (buffer_reserve(out, (size_t)status->st_size + 1) != 0)
        return error_set(err, ERR_NOMEM, "no memory to read %s", path);
    while (out->size < (size_t)status->st_size) {
        ssize_t n = read(fd, out->data + out->size, (size_t)status->st_size - out->size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, ERR_SYS, "read %s", path);
        if (n == 0)
            break;
        out->size += (size_t)n;
    }
    return 0;
}

static int
load(const char *path, struct token_list *out, struct stat *status, struct error *err)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct json_fault fault = { 0 };

    *out = (struct token_list){ 0 };
    int rc = read_bytes(path, &text, status, err);
    if (rc != 0)
        return rc;
    AUTO_JSON json_t *document = json_parse(text.data, text.size, &fault);
    rc = document ? read_tokens(document, out, &fault) : ERR_INPUT;
    if (rc == 0)
        return 0;
    token_list_release(out);
    if (rc == ERR_NOMEM)
        return error_set(err, rc, "no memory for the tokens of %s", path);
    return error_set(err, rc, "%s: %s%s%s", path, fault.pointer, *fault.pointer ? ": " : "", fault.text);
}

int
token_list_load(const char *path, struct token_list *out, struct error *err)
{
    struct stat status;
    return load(path, out, &status, err);
}

static void
hash_token(const char *text, unsigned char out[TOKEN_HASH_SIZE])
{
    crypto_generichash(out, TOKEN_HASH_SIZE, (const unsigned char *)text, strlen(text), NULL, 0);
}

static const struct token *
find_hash(const struct token_list *list, const unsigned char hash[TOKEN_HASH_SIZE], int64_t now_ms)
{
    const struct token *found = NULL;

    for (size_t i = 0; i < list->n; i++)
        if (sodium_memcmp(hash, list->rows[i].hash, TOKEN_HASH_SIZE) == 0)
            found = &list->rows[i];
    return found && found->expires_ms && found->expires_ms <= now_ms ? NULL : found;
}

const struct token *
token_find(const struct token_list *list, const char *text, int64_t now_ms)
{
    unsigned char hash[TOKEN_HASH_SIZE];

    hash_token(text, hash);
    return find_hash(list, hash, now_ms);
}

/* --- writing --- */

static json_t *
list_json(const struct token_list *list)
{
    json_t *items = json_array();

    for (size_t i = 0; i < list->n; i++) {
        const struct token *t = &list->rows[i];
        char hash[2 * TOKEN_HASH_SIZE + 1];
        json_t *scopes = json_array();
        for (size_t k = 0; k < ARRAY_LEN(scope_names); k++)
            if (t->scopes & scope_names[k].scope)
                json_array_append_new(scopes, json_string(scope_names[k].name));
        sodium_bin2hex(hash, sizeof(hash), t->hash, sizeof(t->hash));
        json_array_append_new(items,
                              json_pack("{s:s, s:s, s:o, s:s, s:I, s:I}", "name", t->name, "client",
                                        t->client, "scopes", scopes, "hash", hash, "created_ms",
                                        (json_int_t)t->created_ms, "expires_ms", (json_int_t)t->expires_ms));
    }
    return json_pack("{s:o}", "tokens", items);
}

static int
write_bytes(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, text, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ERR_SYS;
        text += n;
        size -= (size_t)n;
    }
    return 0;
}

/* The directory that a file lies in: given. */
static char *
directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == path ? strdup("/") : slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
}

/* It may be made by root for a daemon that is not: the owner of the directory has to read it. */
static int
give_to_owner(int fd, const char *directory)
{
    struct stat status;

    if (geteuid() != 0 || stat(directory, &status) != 0)
        return 0;
    return fchown(fd, status.st_uid, status.st_gid);
}

static int
save(const char *path, const struct token_list *list, struct error *err)
{
    AUTO_JSON json_t *document = list_json(list);
    AUTO_FREE char *text = document ? json_dumps(document, JSON_INDENT(1)) : NULL;
    AUTO_FREE char *directory = directory_of(path);
    AUTO_FREE char *temporary = NULL;

    if (!text || !directory || asprintf(&temporary, "%s.XXXXXX", path) < 0)
        return error_set(err, ERR_NOMEM, "no memory to write %s", path);
    AUTO_FD int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_SYS, "make %s", temporary);
    AUTO_FD int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (give_to_owner(fd, directory) != 0 || write_bytes(fd, text, strlen(text)) != 0 ||
        write_bytes(fd, "\n", 1) != 0 || fsync(fd) != 0 || rename(temporary, path) != 0) {
        int code = error_set(err, ERR_SYS, "write %s", path);
        unlink(temporary);
        return code;
    }
    return place < 0 || fsync(place) != 0 ? error_set(err, ERR_SYS, "write %s", directory) : 0;
}

/* Two edits at once would lose one of them. fd: given, close() lets go. */
static int
lock(const char *path, int *fd, struct error *err)
{
    AUTO_FREE char *name = NULL;

    if (asprintf(&name, "%s.lock", path) < 0)
        return error_set(err, ERR_NOMEM, "no memory to lock %s", path);
    *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0 && errno == ENOENT)
        return error_set(err, ERR_SYS, "the directory of %s", path);
    if (*fd < 0 || flock(*fd, LOCK_EX) != 0)
        return error_set(err, ERR_SYS, "lock %s", name);
    return 0;
}

static const struct token *
find_name(const struct token_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->rows[i].name, name) == 0)
            return &list->rows[i];
    return NULL;
}

static void
make_secret(char text[TOKEN_TEXT_SIZE])
{
    unsigned char secret[32];

    randombytes_buf(secret, sizeof(secret));
    memcpy(text, "vd_", 3);
    sodium_bin2base64(text + 3, TOKEN_TEXT_SIZE - 3, secret, sizeof(secret),
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    sodium_memzero(secret, sizeof(secret));
}

static int
add(const char *path, struct token_list *list, const struct token *row, char text[TOKEN_TEXT_SIZE],
    struct error *err)
{
    if (find_name(list, row->name))
        return error_set(err, ERR_CONFLICT, "there is a token named \"%s\" already", row->name);
    if (list->n >= TOKENS_MAX)
        return error_set(err, ERR_FULL, "there are %d tokens already", TOKENS_MAX);
    struct token *rows = realloc(list->rows, (list->n + 1) * sizeof(*rows));
    if (!rows)
        return error_set(err, ERR_NOMEM, "no memory for a token");
    list->rows = rows;
    make_secret(text);
    rows[list->n] = *row;
    rows[list->n].created_ms = clock_wall_ms();
    hash_token(text, rows[list->n].hash);
    list->n++;
    return save(path, list, err);
}

int
token_add(const char *path, const struct token *row, char text[TOKEN_TEXT_SIZE], struct error *err)
{
    struct token_list list = { 0 };
    struct error why = { 0 }; /* a missing file is not an error here */
    AUTO_FD int fd = -1;

    if (sodium_init() < 0)
        return error_set(err, ERR_UNAVAILABLE, "libsodium does not start");
    int rc = lock(path, &fd, err);
    if (rc == 0)
        rc = token_list_load(path, &list, &why);
    if (rc == 0 || rc == ERR_NOTFOUND)
        rc = add(path, &list, row, text, err);
    else if (why.code != ERR_NONE && err)
        *err = why;
    token_list_release(&list);
    return rc;
}

int
token_revoke(const char *path, const char *name, struct error *err)
{
    struct token_list list = { 0 };
    AUTO_FD int fd = -1;

    int rc = lock(path, &fd, err);
    if (rc == 0)
        rc = token_list_load(path, &list, err);
    if (rc == 0) {
        const struct token *found = find_name(&list, name);
        size_t kept = 0;
        for (size_t i = 0; i < list.n; i++)
            if (&list.rows[i] != found)
                list.rows[kept++] = list.rows[i];
        list.n = kept;
        rc = found ? save(path, &list, err)
                   : error_set(err, ERR_NOTFOUND, "there is no token named \"%s\"", name);
    }
    token_list_release(&list);
    return rc;
}

/* --- the daemon's view --- */

struct keyring {
    char *path;
    bool is_on, is_missed; /* is_missed: that the file is gone was said */
    struct stat seen;      /* of the file as it was read, or as it was refused */
    struct token_list list;
};

static bool
is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int
keyring_read(struct keyring *k, struct error *err)
{
    struct token_list list;
    struct stat status = { 0 };

    int rc = load(k->path, &list, &status, err);
    if (rc == 0) {
        token_list_release(&k->list);
        k->list = list;
        k->is_on = true;
        k->is_missed = false;
    }
    k->seen = status;
    return rc;
}

int
keyring_new(const char *path, struct keyring **out, struct error *err)
{
    struct keyring *k = calloc(1, sizeof(*k));

    *out = NULL;
    if (!k || !(k->path = strdup(path))) {
        free(k);
        return error_set(err, ERR_NOMEM, "no memory for tokens");
    }
    if (sodium_init() < 0) {
        keyring_free(k);
        return error_set(err, ERR_UNAVAILABLE, "libsodium does not start");
    }
    int rc = keyring_read(k, err);
    if (rc != 0 && rc != ERR_NOTFOUND) {
        keyring_free(k);
        return rc;
    }
    *out = k;
    return 0;
}

void
keyring_free(struct keyring *k)
{
    if (!k)
        return;
    token_list_release(&k->list);
    free(k->path);
    free(k);
}

void
keyring_refresh(struct keyring *k)
{
    struct stat now;
    struct error err = { 0 };

    if (stat(k->path, &now) != 0) {
        if (k->is_on && !k->is_missed)
            log_error("tokens", "%s is gone; the tokens that were in it still count until a restart",
                      k->path);
        k->is_missed = true;
        memset(&k->seen, 0, sizeof(k->seen));
        return;
    }
    if (is_same_file(&now, &k->seen))
        return;
    if (keyring_read(k, &err) == 0) {
        log_info("tokens", "%zu tokens in %s", k->list.n, k->path);
        return;
    }
    k->seen = now; /* said once for each change */
    log_error("tokens", "%s; the tokens stay as they were", err.text);
    /* A file that was never read right must not leave the door open. */
    k->is_on = true;
}

bool
keyring_is_on(const struct keyring *k)
{
    return k->is_on;
}

const struct token *
keyring_find(const struct keyring *k, const char *text)
{
    return token_find(&k->list, text, clock_wall_ms());
}

bool
keyring_has(const struct keyring *k, const unsigned char hash[TOKEN_HASH_SIZE])
{
    return find_hash(&k->list, hash, clock_wall_ms()) != NULL;
}
