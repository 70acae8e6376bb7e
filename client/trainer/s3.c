#include "client/trainer/s3.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>
#include <sodium.h>

#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/http_client.h"

#define ANSWER_MAX ((size_t)1 << 20)
#define ATTEMPTS 5
#define CONNECT_LIMIT_S 10L
#define CALL_LIMIT_S 60L

struct s3 {
    const struct s3_account *account;
    const char *bucket;
    CURL *curl;
    char url[512];  /* of the bucket */
    char host[256]; /* as the Host header has it, port included */
};

static bool
begins_or_ends(const char *name, const char *const *marks, size_t n, bool is_end)
{
    for (size_t i = 0; i < n; i++) {
        const size_t size = strlen(marks[i]), all = strlen(name);
        if (all >= size && memcmp(is_end ? name + all - size : name, marks[i], size) == 0)
            return true;
    }
    return false;
}

bool
s3_is_name(const char *name, const char **why)
{
    static const char *const beginnings[] = { "xn--", "sthree-", "amzn-s3-demo-" };
    static const char *const ends[] = { "-s3alias", "--ol-s3", "--x-s3", "--table-s3" };
    const size_t size = strlen(name);

    *why = NULL;
    if (size < 3 || size > 63)
        *why = "a name has 3 to 63 characters";
    else if (strchr(name, '.'))
        *why = "a dot breaks the certificate of an https address";
    else if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != size)
        *why = "a name has lower-case letters, digits and hyphens only";
    else if (name[0] == '-' || name[size - 1] == '-')
        *why = "a name begins and ends with a letter or a digit";
    else if (begins_or_ends(name, beginnings, ARRAY_LEN(beginnings), false))
        *why = "AWS keeps names with this beginning to itself";
    else if (begins_or_ends(name, ends, ARRAY_LEN(ends), true))
        *why = "AWS keeps names with this end to itself";
    return *why == NULL;
}

int
s3_new(const struct s3_account *account, const char *bucket, struct s3 **out, struct error *err)
{
    char base[256];
    const char *suffix = strncmp(account->region, "cn-", 3) == 0 ? ".cn" : "";

    *out = NULL;
    if (account->url)
        snprintf(base, sizeof(base), "%s", account->url);
    else
        snprintf(base, sizeof(base), "https://s3.%s.amazonaws.com%s", account->region, suffix);
    for (size_t n = strlen(base); n > 0 && base[n - 1] == '/'; n--)
        base[n - 1] = '\0';
    const char *host = strncasecmp(base, "https://", 8) == 0  ? base + 8
                       : strncasecmp(base, "http://", 7) == 0 ? base + 7
                                                              : "";
    if (!*host || strpbrk(host, "/@?# ") || (account->url && strlen(account->url) >= sizeof(base)))
        return error_set(err, ERR_INPUT,
                         "\"%.100s\" is not the address of an S3 service (https://HOST, no path)", base);
    struct s3 *s = calloc(1, sizeof(*s));
    if (s)
        s->curl = curl_easy_init();
    if (!s || !s->curl) {
        s3_free(s);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    s->account = account;
    s->bucket = bucket;
    snprintf(s->host, sizeof(s->host), "%s", host);
    /* The path has the name, not the host: every service can do that, and any certificate fits. */
    snprintf(s->url, sizeof(s->url), "%s/%s", base, bucket);
    *out = s;
    return 0;
}

void
s3_free(struct s3 *s)
{
    if (!s)
        return;
    if (s->curl)
        curl_easy_cleanup(s->curl);
    free(s);
}

void
s3_answer_release(struct s3_answer *a)
{
    buffer_release(&a->body);
    *a = (struct s3_answer)S3_ANSWER_INIT;
}

struct xml_span
s3_document(const struct s3_answer *a)
{
    return (struct xml_span){ a->body.data ? a->body.data : "", a->body.size };
}

static size_t
take_cb(char *data, size_t one, size_t n, void *to)
{
    struct buffer *into = to;
    return one * n <= ANSWER_MAX - into->size && buffer_append(into, data, one * n) == 0 ? one * n : 0;
}

static size_t
header_cb(char *data, size_t one, size_t n, void *to)
{
    static const char name[] = "x-amz-bucket-region:";
    struct s3_answer *a = to;
    const size_t size = one * n, skip = sizeof(name) - 1;

    if (size > skip && strncasecmp(data, name, skip) == 0) {
        const char *at = data + skip, *end = data + size;
        while (at < end && isspace((unsigned char)*at))
            at++;
        while (end > at && isspace((unsigned char)end[-1]))
            end--;
        snprintf(a->region, sizeof(a->region), "%.*s", (int)(end - at), at);
    }
    return size;
}

static int
add_header(struct curl_slist **list, const char *name, const char *value)
{
    AUTO_BUFFER struct buffer line = BUFFER_INIT;
    struct curl_slist *longer =
        buffer_printf(&line, "%s: %s", name, value) == 0 ? curl_slist_append(*list, line.data) : NULL;
    if (!longer)
        return ERR_NOMEM;
    *list = longer;
    return 0;
}

/*
 * Host, the body's digest and the time are what a signature covers. curl would write the first two itself, and did it wrongly in
 * several versions (a port, a body): it signs what it is given.
 */
static int
make_headers(const struct s3 *s, const char *document, struct curl_slist **list)
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof(digest) + 1],
        base64[sodium_base64_ENCODED_LEN(sizeof(digest), sodium_base64_VARIANT_ORIGINAL)];

    crypto_hash_sha256(digest, (const unsigned char *)document, strlen(document));
    sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
    sodium_bin2base64(base64, sizeof(base64), digest, sizeof(digest), sodium_base64_VARIANT_ORIGINAL);
    int rc = add_header(list, "Host", s->host);
    rc = rc == 0 ? add_header(list, "x-amz-content-sha256", hex) : rc;
    if (rc == 0 && *document) /* lifecycle rules are not taken without a digest */
        rc = add_header(list, "x-amz-checksum-sha256", base64);
    if (rc == 0 && s->account->token)
        rc = add_header(list, "x-amz-security-token", s->account->token);
    return rc == 0 ? add_header(list, "Content-Type", "application/xml") : rc;
}

static void
set_options(struct s3 *s, const char *method, const char *url, const char *document,
            struct curl_slist *headers, struct s3_answer *a)
{
    char provider[64];
    CURL *curl = s->curl;

    curl_easy_reset(curl);
    snprintf(provider, sizeof(provider), "aws:amz:%.32s:s3", s->account->region);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, provider);
    curl_easy_setopt(curl, CURLOPT_USERNAME, s->account->key_id);
    curl_easy_setopt(curl, CURLOPT_PASSWORD, s->account->secret);
    if (strcmp(method, "PUT") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(document));
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, document);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "trainer");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    http_client_secure(curl);
    const char *bundle = getenv("AWS_CA_BUNDLE"); /* as Amazon's own clients have it */
    if (bundle && bundle[0])
        curl_easy_setopt(curl, CURLOPT_CAINFO, bundle);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_LIMIT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, CALL_LIMIT_S);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_cb);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &a->body);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, header_cb);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, a);
    if (strncmp(s->host, "127.", 4) == 0 || strncmp(s->host, "localhost", 9) == 0)
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "*"); /* a proxy's loopback is another machine */
}

static int
call(struct s3 *s, const char *method, const char *part, const char *document, struct s3_answer *out,
     struct error *err)
{
    char url[640];
    struct curl_slist *headers = NULL;

    /* "part=", not "part": a signature is over the former, and older curls sign the query as it stands. */
    snprintf(url, sizeof(url), "%s%s%s%s", s->url, part ? "?" : "", part ? part : "", part ? "=" : "");
    if (make_headers(s, document, &headers) != 0) {
        curl_slist_free_all(headers);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    set_options(s, method, url, document, headers, out);
    CURLcode code = curl_easy_perform(s->curl);
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &out->status);
    curl_slist_free_all(headers);
    if (code != CURLE_OK)
        return error_set(err, ERR_UNAVAILABLE, "%.100s cannot be asked: %.100s", s->url,
                         curl_easy_strerror(code));
    if (out->status >= 300) {
        xml_copy(s3_document(out), "Code", out->code, sizeof(out->code));
        if (!out->region[0])
            xml_copy(s3_document(out), "Region", out->region, sizeof(out->region));
    }
    return 0;
}

/* Something that passes: a bucket that was made is known everywhere only after a moment. */
static bool
is_passing(const struct s3_answer *a, bool is_part_put)
{
    return a->status == 503 || a->status == 500 || strcmp(a->code, "OperationAborted") == 0 ||
           (is_part_put && strcmp(a->code, "NoSuchBucket") == 0);
}

int
s3_call(struct s3 *s, const char *method, const char *part, const char *document, struct s3_answer *out,
        struct error *err)
{
    const bool is_part_put = part && strcmp(method, "PUT") == 0;
    double pause_s = 0.5;
    for (int attempt = 1;; attempt++) {
        s3_answer_release(out);
        int rc = call(s, method, part, document ? document : "", out, err);
        if (rc != 0 || !is_passing(out, is_part_put) || attempt == ATTEMPTS || trainer_is_stopping())
            return rc;
        trainer_pause(pause_s);
        pause_s *= 2;
    }
}

int
s3_refusal(const struct s3 *s, const struct s3_answer *a, struct error *err)
{
    static const struct {
        const char *code, *means;
    } known[] = {
        { "InvalidAccessKeyId", "the service does not know the key in AWS_ACCESS_KEY_ID" },
        { "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY is not that of the key in AWS_ACCESS_KEY_ID" },
        { "InvalidToken", "AWS_SESSION_TOKEN is not that of the key in AWS_ACCESS_KEY_ID" },
        { "ExpiredToken", "the credentials in AWS_SESSION_TOKEN are no longer valid" },
        { "RequestTimeTooSkewed", "the clock of this machine is wrong" },
        { "BucketAlreadyExists", "it belongs to somebody else, names are shared by all: choose another" },
        { "AccessDenied", "it belongs to somebody else, or these credentials may not do this" },
        { "InvalidBucketName", "the service does not take this name" },
        { "TooManyBuckets", "the account has as many buckets as it may have" },
    };
    char said[120];
    if (a->region[0] && strcmp(a->region, s->account->region) != 0)
        return error_set(err, ERR_INPUT, "bucket %s is in region %s, not in %s: --region %s", s->bucket,
                         a->region, s->account->region, a->region);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(a->code, known[i].code) == 0)
            return error_set(err, ERR_INPUT, "bucket %s: %s (%s)", s->bucket, known[i].means, a->code);
    xml_copy(s3_document(a), "Message", said, sizeof(said));
    return error_set(err, ERR_INPUT, "bucket %s: %s answers %ld %s: %s", s->bucket, s->host, a->status,
                     a->code, said);
}
