#include "client/trainer/hub.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <curl/curl.h>
#include <sodium.h>

#include "client/trainer/output.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/http_client.h"

enum { LISTING_MAX = 64 * 1024 * 1024, URL_MAX = 2048, STALLED_S = 60, PAGES_MAX = 1000 };

struct hub {
    const struct hub_options *options;
    const char *url, *token;
    CURL *curl;
};

/* One answer: into memory or into a file. */
struct sink {
    CURL *curl;
    struct buffer *text; /* NULL: into file */
    FILE *file;
    int64_t start; /* where in the file the answer belongs, when it is partial */
    int64_t size, told_ns;
    const char *name;
    char next[URL_MAX]; /* the listing's next page */
    bool is_started, is_bad, is_too_long;
    double retry_after_s;
};

static void
sink_begin(struct sink *s)
{
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    s->is_started = true;
    if (s->file && status == 200) { /* the server knows no ranges: from the start */
        rewind(s->file);
        s->is_bad = ftruncate(fileno(s->file), 0) != 0;
    }
}

static void
tell(struct sink *s)
{
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns - s->told_ns < 2000000000)
        return;
    s->told_ns = now_ns;
    fprintf(stderr, "%s: %.1f of %.1f MB\n", s->name, (double)ftello(s->file) / 1e6, (double)s->size / 1e6);
}

static size_t
receive_cb(char *bytes, size_t one, size_t n, void *arg)
{
    struct sink *s = arg;
    long status = 0;

    (void)one;
    if (trainer_is_stopping())
        return 0;
    if (!s->is_started)
        sink_begin(s);
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299)
        return n; /* a refusal's page is not kept */
    if (s->text) {
        s->is_too_long = s->text->size + n > LISTING_MAX;
        return s->is_too_long || buffer_append(s->text, bytes, n) != 0 ? 0 : n;
    }
    s->is_bad = s->is_bad || fwrite(bytes, 1, n, s->file) != n;
    tell(s);
    return s->is_bad ? 0 : n;
}

/* Link: <URL>; rel="next" */
static void
read_link(struct sink *s, const char *text)
{
    const char *open = strchr(text, '<'), *close = open ? strchr(open, '>') : NULL;
    s->next[0] = '\0';
    if (close && strstr(close, "rel=\"next\"") && close - open < URL_MAX)
        snprintf(s->next, sizeof(s->next), "%.*s", (int)(close - open - 1), open + 1);
}

static size_t
header_cb(char *bytes, size_t one, size_t n, void *arg)
{
    struct sink *s = arg;
    char line[URL_MAX + 64];

    (void)one;
    snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : sizeof(line) - 1), bytes);
    if (strncasecmp(line, "link:", 5) == 0)
        read_link(s, line + 5);
    if (strncasecmp(line, "retry-after:", 12) == 0)
        s->retry_after_s = strtod(line + 12, NULL);
    return n;
}

static int
look_cb(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)arg, (void)a, (void)b, (void)c, (void)d;
    return trainer_is_stopping();
}

/* One request, which may be tried again: 0 and *status, or an error. */
static int
get_once(struct hub *h, const char *url, struct sink *s, long *status, struct error *err)
{
    char details[CURL_ERROR_SIZE] = "", range[32], bearer[512];
    struct curl_slist *headers = NULL;
    CURLcode rc;

    s->curl = h->curl;
    s->is_started = false;
    s->retry_after_s = -1;
    if (h->token &&
        strncmp(url, h->url, strlen(h->url)) == 0) { /* libcurl leaves it out where another host answers */
        snprintf(bearer, sizeof(bearer), "Authorization: Bearer %.400s", h->token);
        headers = curl_slist_append(NULL, bearer);
    }
    curl_easy_reset(h->curl);
    curl_easy_setopt(h->curl, CURLOPT_URL, url);
    curl_easy_setopt(h->curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(h->curl, CURLOPT_MAXREDIRS, 5L);
    curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h->curl, CURLOPT_USERAGENT, "trainer");
    curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    http_client_secure(h->curl);
    curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT, 20L);
    curl_easy_setopt(h->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h->curl, CURLOPT_LOW_SPEED_TIME, (long)STALLED_S);
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, receive_cb);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(h->curl, CURLOPT_HEADERFUNCTION, header_cb);
    curl_easy_setopt(h->curl, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(h->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h->curl, CURLOPT_XFERINFOFUNCTION, look_cb);
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, details);
    if (strncmp(h->url, "http://127.", 11) == 0 || strncmp(h->url, "http://localhost", 16) == 0)
        curl_easy_setopt(h->curl, CURLOPT_NOPROXY, "*");
    if (s->file && s->start > 0) {
        snprintf(range, sizeof(range), "%lld-", (long long)s->start);
        curl_easy_setopt(h->curl, CURLOPT_RANGE, range);
    }
    rc = curl_easy_perform(h->curl);
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, status);
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(headers);
    if (trainer_is_stopping())
        return error_set(err, ERR_UNAVAILABLE, "interrupted; run it again to go on");
    if (s->is_too_long)
        return error_set(err, ERR_INPUT, "the listing at %.160s is longer than %d bytes", url, LISTING_MAX);
    if (rc == CURLE_WRITE_ERROR && s->is_bad)
        return error_set(err, ERR_SYS, "cannot write %s", s->name);
    if (rc != CURLE_OK)
        return error_set(err, ERR_TIMEOUT, "%.160s: %.80s", url,
                         details[0] ? details : curl_easy_strerror(rc));
    return 0;
}

static bool
is_passing(int rc, long status)
{
    return rc == ERR_TIMEOUT || (rc == 0 && (status == 408 || status == 429 || status >= 500));
}

/*
 * Until it answered with 2xx, or will not. A file goes on behind what is there already; ERR_TIMEOUT becomes ERR_UNAVAILABLE when all
 * attempts are spent.
 */
static int
get(struct hub *h, const char *url, struct sink *s, struct error *err)
{
    for (int attempt = 1;; attempt++) {
        long status = 0;
        if (s->text)
            buffer_clear(s->text);
        if (s->file && (fflush(s->file) != 0 || fseeko(s->file, 0, SEEK_END) != 0))
            return error_set(err, ERR_SYS, "cannot write %s", s->name);
        s->start = s->file ? (int64_t)ftello(s->file) : 0;
        if (s->file && s->size > 0 && s->start == s->size)
            return 0;                        /* all is there */
        if (s->file && s->start > s->size) { /* of something else */
            rewind(s->file);
            if (ftruncate(fileno(s->file), 0) != 0)
                return error_set(err, ERR_SYS, "cannot write %s", s->name);
            s->start = 0;
        }
        int64_t before = s->start;
        int rc = get_once(h, url, s, &status, err);
        bool has_moved = s->file && ftello(s->file) > before && status < 300;
        if (has_moved)
            attempt = 0; /* a connection that breaks off now and then gets there in the end */
        if (is_passing(rc, status) && attempt < h->options->attempts) {
            double pause_s = attempt < 6 ? 0.5 * (double)(1 << attempt) : 30;
            trainer_pause(s->retry_after_s > pause_s ? (s->retry_after_s > 300 ? 300 : s->retry_after_s)
                                                     : pause_s);
            continue;
        }
        if (rc == ERR_TIMEOUT)
            err->code = ERR_UNAVAILABLE;
        if (rc != 0)
            return err->code;
        if (status >= 200 && status <= 299)
            return 0;
        return error_set(err, is_passing(0, status) ? ERR_UNAVAILABLE : ERR_INPUT,
                         "the hub answered %ld to %.160s%s", status, url,
                         status == 401 || status == 403 ? ": HF_TOKEN?" : "");
    }
}

static int
get_json(struct hub *h, const char *url, json_t **out, char next[URL_MAX], struct error *err)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct sink s = { .text = &text, .name = "a listing" };
    json_error_t why;

    *out = NULL;
    int rc = get(h, url, &s, err);
    if (rc != 0)
        return rc;
    *out = json_loadb(text.data ? text.data : "", text.size, 0, &why);
    if (next)
        snprintf(next, URL_MAX, "%s", s.next);
    return *out ? 0 : error_set(err, ERR_INPUT, "%.160s is no JSON: %.60s", url, why.text);
}

/* A path for a URL, its slashes kept when keeps_slashes. */
static void
escape(const char *text, bool keeps_slashes, char out[URL_MAX])
{
    size_t n = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at && n + 4 < URL_MAX; at++) {
        bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                        (*at >= '0' && *at <= '9') || strchr("-._~", *at) || (keeps_slashes && *at == '/');
        n += (size_t)snprintf(out + n, 4, is_plain ? "%c" : "%%%02X", *at);
    }
    out[n] = '\0';
}

static int
find_commit(struct hub *h, char commit[80], struct error *err)
{
    char url[URL_MAX * 2], revision[URL_MAX];
    AUTO_JSON json_t *about = NULL;

    escape(h->options->revision, false, revision);
    snprintf(url, sizeof(url), "%s/api/datasets/%.200s/revision/%.1000s", h->url, h->options->id, revision);
    int rc = get_json(h, url, &about, NULL, err);
    const char *sha = json_string_value(json_object_get(about, "sha"));
    if (rc == 0 && (!sha || strlen(sha) > 64 || strspn(sha, "0123456789abcdef") != strlen(sha)))
        rc = error_set(err, ERR_INPUT, "%.160s names no commit (\"sha\")", url);
    if (rc == 0)
        snprintf(commit, 80, "%s", sha);
    return rc;
}

/* A path that stays below its directory. */
static bool
is_safe(const char *path)
{
    if (path[0] == '/' || !path[0])
        return false;
    for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2]))
            return false;
    return true;
}

struct listed {
    const char *path; /* of row */
    json_t *row;      /* borrowed */
};

static int
compare_paths(const void *left, const void *right)
{
    const struct listed *a = left, *b = right;
    return strcmp(a->path, b->path);
}

/* Those of a listing's page that are wanted. */
static void
take_page(const struct hub *h, json_t *page, json_t *out)
{
    json_t *row;
    size_t i;
    json_array_foreach(page, i, row)
    {
        const char *path = json_string_value(json_object_get(row, "path"));
        const char *type = json_string_value(json_object_get(row, "type"));
        json_t *lfs = json_object_get(row, "lfs");
        json_t *size = json_object_get(lfs ? lfs : row, "size");
        if (!path || !type || strcmp(type, "file") != 0 || !is_safe(path) || !json_is_integer(size) ||
            fnmatch(h->options->pattern, path, 0) != 0)
            continue;
        json_array_append_new(out, json_pack("{s:s, s:O, s:O*}", "path", path, "size", size, "oid",
                                             json_object_get(lfs, "oid")));
    }
}

static int
list_files(struct hub *h, const char *commit, json_t **out, struct error *err)
{
    char url[URL_MAX * 2], next[URL_MAX];
    AUTO_JSON json_t *found = json_array();
    int rc = 0, pages = 0;

    snprintf(url, sizeof(url), "%s/api/datasets/%.200s/tree/%s?recursive=true", h->url, h->options->id,
             commit);
    while (rc == 0 && url[0] && pages++ < PAGES_MAX) {
        AUTO_JSON json_t *page = NULL;
        rc = get_json(h, url, &page, next, err);
        if (rc == 0 && !json_is_array(page))
            rc = error_set(err, ERR_INPUT, "%.160s is no listing of files", url);
        take_page(h, page, found);
        snprintf(url, sizeof(url), "%s", next);
    }
    size_t n = json_array_size(found);
    if (rc == 0 && n == 0)
        rc = error_set(err, ERR_INPUT, "no file of %s at %.12s is called %s", h->options->id, commit,
                       h->options->pattern);
    if (rc != 0)
        return rc;
    AUTO_FREE struct listed *sorted = calloc(n + 1, sizeof(*sorted));
    if (!sorted)
        return error_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(found, i);
        sorted[i] = (struct listed){ json_string_value(json_object_get(row, "path")), row };
    }
    qsort(sorted, n, sizeof(*sorted), compare_paths);
    *out = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(*out, sorted[i].row);
    return 0;
}

/* --- one file --- */

static int
digest_file(FILE *file, const char *name, char out[HASH_TEXT_SIZE], struct error *err)
{
    crypto_hash_sha256_state state;
    unsigned char bytes[16384], hash[crypto_hash_sha256_BYTES];
    size_t n;

    crypto_hash_sha256_init(&state);
    rewind(file);
    while ((n = fread(bytes, 1, sizeof(bytes), file)) > 0)
        crypto_hash_sha256_update(&state, bytes, n);
    if (ferror(file))
        return error_set(err, ERR_SYS, "cannot read %s", name);
    crypto_hash_sha256_final(&state, hash);
    n = (size_t)snprintf(out, HASH_TEXT_SIZE, "sha256:");
    sodium_bin2hex(out + n, HASH_TEXT_SIZE - n, hash, sizeof(hash));
    return 0;
}

/* Is it what the listing and the user say? */
static int
check_file(const struct hub *h, json_t *row, const char *digest, bool is_only, struct error *err)
{
    const char *path = json_string_value(json_object_get(row, "path"));
    const char *oid = json_string_value(json_object_get(row, "oid"));
    const char *wanted = h->options->digest;

    if (oid && strcmp(digest + strlen("sha256:"), oid) != 0)
        return error_set(err, ERR_INPUT, "%.100s is not what the hub lists: its digest is %s, not %.64s",
                         path, digest, oid);
    if (is_only && wanted && strcmp(wanted, digest) != 0)
        return error_set(err, ERR_INPUT, "%.100s has the digest %s, not %.71s", path, digest, wanted);
    return 0;
}

/* Have one file; row gets "file" and "digest". */
static int
fetch_file(struct hub *h, json_t *row, const char *commit, const char *directory, bool is_only,
           struct error *err)
{
    const char *path = json_string_value(json_object_get(row, "path"));
    int64_t size = json_integer_value(json_object_get(row, "size"));
    char where[OUTPUT_PATH_MAX], partial[OUTPUT_PATH_MAX + 8], escaped[URL_MAX], url[URL_MAX * 2];
    char digest[HASH_TEXT_SIZE];
    struct stat status;

    int rc = output_path(directory, commit, path, where, err);
    if (rc != 0)
        return rc;
    snprintf(partial, sizeof(partial), "%s.part", where);
    bool is_there = stat(where, &status) == 0 && status.st_size == size;
    FILE *file = is_there ? fopen(where, "r") : fopen(partial, "a+");
    if (!file)
        return error_set(err, ERR_SYS, "cannot open %s", is_there ? where : partial);
    if (!is_there && size > 0) {
        struct sink s = { .file = file, .size = size, .name = path, .told_ns = clock_monotonic_ns() };
        escape(path, true, escaped);
        snprintf(url, sizeof(url), "%s/datasets/%.200s/resolve/%s/%s", h->url, h->options->id, commit,
                 escaped);
        rc = get(h, url, &s, err);
        bool is_written = fflush(file) == 0 && fdatasync(fileno(file)) == 0 && fseeko(file, 0, SEEK_END) == 0;
        if (rc == 0 && !is_written)
            rc = error_set(err, ERR_SYS, "cannot write %s", partial);
        if (rc == 0 && ftello(file) != size)
            rc = error_set(err, ERR_INPUT, "%.100s has %lld bytes, not the %lld that the hub lists", path,
                           (long long)ftello(file), (long long)size);
        if (rc == ERR_INPUT)
            unlink(partial);
    }
    rc = rc == 0 ? digest_file(file, where, digest, err) : rc;
    fclose(file);
    if (rc != 0)
        return rc;
    rc = check_file(h, row, digest, is_only, err);
    if (rc != 0)
        unlink(is_there ? where : partial);
    else if (!is_there && rename(partial, where) != 0)
        rc = error_set(err, ERR_SYS, "cannot write %s", where);
    json_object_set_new(row, "file", json_string(where));
    json_object_set_new(row, "digest", json_string(digest));
    json_object_del(row, "oid");
    return rc;
}

static int
fetch_all(struct hub *h, const char *workdir, json_t **out, struct error *err)
{
    char commit[80], directory[OUTPUT_PATH_MAX], name[256];
    AUTO_JSON json_t *files = NULL;
    json_t *row;
    size_t i;

    int rc = find_commit(h, commit, err);
    rc = rc == 0 ? list_files(h, commit, &files, err) : rc;
    if (rc != 0)
        return rc;
    if (h->options->digest && json_array_size(files) != 1)
        return error_set(err, ERR_INPUT, "%zu files match %s; a digest is one file's", json_array_size(files),
                         h->options->pattern);
    snprintf(name, sizeof(name), "%.200s", h->options->id);
    for (char *at = name; (at = strchr(at, '/')) != NULL;)
        *at = '_';
    snprintf(directory, sizeof(directory), "%.500s/data/raw/%s", workdir, name);
    json_array_foreach(files, i, row)
    {
        rc = fetch_file(h, row, commit, directory, json_array_size(files) == 1, err);
        if (rc != 0)
            return rc;
    }
    *out = json_pack("{s:s, s:s, s:s, s:O}", "id", h->options->id, "revision", h->options->revision, "commit",
                     commit, "files", files);
    return *out ? 0 : error_set(err, ERR_NOMEM, "out of memory");
}

int
hub_fetch(const struct hub_options *o, const char *workdir, json_t **out, struct error *err)
{
    struct hub h = { .options = o, .url = o->url, .token = getenv("HF_TOKEN"), .curl = curl_easy_init() };
    char url[512];

    *out = NULL;
    if (!h.url)
        h.url = getenv("HF_ENDPOINT");
    if (!h.url || !h.url[0])
        h.url = "https://huggingface.co";
    snprintf(url, sizeof(url), "%.500s", h.url);
    while (url[0] && url[strlen(url) - 1] == '/')
        url[strlen(url) - 1] = '\0';
    h.url = url;
    if (h.token && !h.token[0])
        h.token = NULL;
    int rc =
        h.curl && sodium_init() >= 0 ? 0 : error_set(err, ERR_NOMEM, "libcurl or libsodium cannot start");
    if (rc == 0 && (!is_safe(o->id) || strchr(o->id, '?') || strchr(o->id, '#')))
        rc = error_set(err, ERR_INPUT, "\"%.100s\" is no id of a data set", o->id);
    rc = rc == 0 ? fetch_all(&h, workdir, out, err) : rc;
    curl_easy_cleanup(h.curl);
    return rc;
}
