#include "server/queue/quota.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

#define ROWS_MAX 1000
#define DAY_MS (86400 * INT64_C(1000))

static int
read_limit(const char *text, size_t size, struct quota *out, struct error *err)
{
    const struct {
        const char *name;
        int64_t *place;
    } limits[] = { { "rate", &out->rate },
                   { "queued", &out->queued },
                   { "running", &out->running },
                   { "gpu_s", &out->gpu_s } };
    const char *equals = memchr(text, '=', size);
    size_t name = equals ? (size_t)(equals - text) : size;
    size_t digits = equals ? size - name - 1 : 0;

    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (strlen(limits[i].name) != name || strncmp(limits[i].name, text, name) != 0)
            continue;
        for (size_t k = 0; k < digits; k++)
            if (!isdigit((unsigned char)equals[1 + k]))
                digits = 0;
        if (digits == 0 || digits > 12)
            return error_set(err, ERR_INPUT, "quotas: %s is a whole number, not \"%.*s\"", limits[i].name,
                             equals ? (int)(size - name - 1) : 0, equals ? equals + 1 : "");
        *limits[i].place = strtoll(equals + 1, NULL, 10);
        return 0;
    }
    return error_set(err, ERR_INPUT, "quotas: \"%.*s\" is none of rate, queued, running, gpu_s", (int)name,
                     text);
}

static int
read_row(const char *text, size_t size, struct quota_row *out, struct error *err)
{
    const char *colon = memchr(text, ':', size);
    size_t name = colon ? (size_t)(colon - text) : 0;
    int rc = 0;

    *out = (struct quota_row){ .client = "" };
    if (name == 0 || name >= sizeof(out->client))
        return error_set(err, ERR_INPUT, "quotas: \"%.*s\" is not CLIENT:LIMIT=NUMBER,...", (int)size, text);
    memcpy(out->client, text, name);
    for (const char *at = colon + 1, *end = text + size; rc == 0 && at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t part = (size_t)((comma ? comma : end) - at);
        rc = read_limit(at, part, &out->quota, err);
        at += part + 1;
    }
    return rc;
}

static int
compare_rows(const void *left, const void *right)
{
    return strcmp(((const struct quota_row *)left)->client, ((const struct quota_row *)right)->client);
}

int
quotas_parse(const char *text, struct quotas *out, struct error *err)
{
    *out = (struct quotas){ 0 };
    for (const char *at = text + strspn(text, " "); *at;) {
        size_t size = strcspn(at, " ");
        struct quota_row *more = out->n < ROWS_MAX ? realloc(out->rows, (out->n + 1) * sizeof(*more)) : NULL;
        if (!more) {
            quotas_release(out);
            return error_set(err, ERR_NOMEM, "quotas: too many clients");
        }
        out->rows = more;
        int rc = read_row(at, size, &more[out->n], err);
        if (rc != 0) {
            quotas_release(out);
            return rc;
        }
        out->n++;
        at += size;
        at += strspn(at, " ");
    }
    if (out->n > 0)
        qsort(out->rows, out->n, sizeof(*out->rows), compare_rows);
    for (size_t i = 1; i < out->n; i++) {
        if (strcmp(out->rows[i - 1].client, out->rows[i].client) != 0)
            continue;
        error_set(err, ERR_INPUT, "quotas: %s stands there twice", out->rows[i].client);
        quotas_release(out);
        return ERR_INPUT;
    }
    return 0;
}

void
quotas_release(struct quotas *q)
{
    free(q->rows);
    *q = (struct quotas){ 0 };
}

static const struct quota *
find_row(const struct quotas *q, const char *client)
{
    struct quota_row key = { .client = "" };
    size_t size = strlen(client);

    if (size >= sizeof(key.client) || q->n == 0)
        return NULL;
    memcpy(key.client, client, size);
    const struct quota_row *row = bsearch(&key, q->rows, q->n, sizeof(*q->rows), compare_rows);
    return row ? &row->quota : NULL;
}

const struct quota *
quotas_find(const struct quotas *q, const char *client)
{
    static const struct quota none;
    const struct quota *found = client && *client ? find_row(q, client) : &none;

    if (!found)
        found = find_row(q, "*");
    return found ? found : &none;
}

static void
turn_day(struct usage *u, int64_t now_ms)
{
    if (u->day == now_ms / DAY_MS)
        return;
    u->day = now_ms / DAY_MS;
    u->gpu_s = 0;
}

bool
usage_is_of_today(const struct usage *u, int64_t now_ms)
{
    return u->gpu_s > 0 && u->day == now_ms / DAY_MS;
}

void
usage_add_gpu(struct usage *u, double seconds, int64_t now_ms)
{
    turn_day(u, now_ms);
    u->gpu_s += seconds;
}

enum quota_limit
quota_admit(const struct quota *q, struct usage *u, size_t n, size_t registrations, int64_t now_ns,
            int64_t now_ms, int *retry_s)
{
    double rate = (double)q->rate;

    *retry_s = 0;
    turn_day(u, now_ms);
    if (q->gpu_s > 0 && u->gpu_s >= (double)q->gpu_s) {
        *retry_s = (int)(((u->day + 1) * DAY_MS - now_ms) / 1000) + 1;
        return QUOTA_GPU;
    }
    if (q->queued > 0 && u->waiting + (int64_t)n > q->queued)
        return QUOTA_QUEUED;
    if (q->rate == 0)
        return QUOTA_OK;
    u->rate_left =
        u->rate_ns == 0 ? rate : fmin(rate, u->rate_left + rate * (double)(now_ns - u->rate_ns) / 60e9);
    u->rate_ns = now_ns;
    /* A group that is larger than what a minute allows comes in once nothing else did for a minute, and is paid off. */
    double needed = fmin((double)(n + registrations), rate),
           left = fmin(u->rate_left, rate - (double)u->recent);
    if (left < needed) {
        *retry_s = (int)ceil((needed - left) * 60 / rate);
        return QUOTA_RATE;
    }
    u->rate_left -= (double)(n + registrations);
    return QUOTA_OK;
}
