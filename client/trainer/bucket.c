/*
 * trainer bucket: a bucket for a run's checkpoints, closed to the public, encrypted, versioned, with lifecycle rules.
 *
 * Theory of operation. Each setting is one row: what to send, and whether what the service answers is what was wanted. A bucket
 * that is there is brought to the wanted state; what differs is told. Then every setting is read back, since a service may take
 * what it does not keep. Nothing that holds objects is ever deleted, and lifecycle rules of others stay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/options.h"
#include "client/trainer/s3.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/buffer.h"

#define XMLNS " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""
#define RULE_ID "trainer-old-versions"
#define UPLOAD_DAYS 7 /* a copy that was cut off is begun again within the hour */
#define LOOKS 3       /* at a setting, before it counts as not kept */

struct bucket {
    struct trainer *trainer;
    const char *name;
    struct s3_account account;
    int old_days;     /* how long versions that were replaced are kept */
    unsigned without; /* bits of settings[] that the service cannot do, and the user knows */
    bool is_check, is_json;
    struct s3 *s3;
};

/* --- the settings --- */

static int
write_access(const struct bucket *b, struct xml_span now, struct buffer *out)
{
    (void)b;
    (void)now;
    return buffer_add(out,
                      "<PublicAccessBlockConfiguration" XMLNS "><BlockPublicAcls>true</BlockPublicAcls>"
                      "<IgnorePublicAcls>true</IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy>"
                      "<RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>");
}

static bool
is_access_kept(const struct bucket *b, struct xml_span now)
{
    (void)b;
    return xml_is(now, "BlockPublicAcls", "true") && xml_is(now, "IgnorePublicAcls", "true") &&
           xml_is(now, "BlockPublicPolicy", "true") && xml_is(now, "RestrictPublicBuckets", "true");
}

static int
write_encryption(const struct bucket *b, struct xml_span now, struct buffer *out)
{
    (void)b;
    (void)now;
    return buffer_add(out,
                      "<ServerSideEncryptionConfiguration" XMLNS
                      "><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm>"
                      "</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>");
}

/* With a key of the owner's is as good. */
static bool
is_encryption_kept(const struct bucket *b, struct xml_span now)
{
    (void)b;
    return xml_is(now, "SSEAlgorithm", "AES256") || xml_is(now, "SSEAlgorithm", "aws:kms") ||
           xml_is(now, "SSEAlgorithm", "aws:kms:dsse");
}

static int
write_versioning(const struct bucket *b, struct xml_span now, struct buffer *out)
{
    (void)b;
    (void)now;
    return buffer_add(out,
                      "<VersioningConfiguration" XMLNS "><Status>Enabled</Status></VersioningConfiguration>");
}

static bool
is_versioning_kept(const struct bucket *b, struct xml_span now)
{
    (void)b;
    return xml_is(now, "Status", "Enabled");
}

/* All rules are replaced at once: those of others are sent back as they came. */
static int
write_lifecycle(const struct bucket *b, struct xml_span now, struct buffer *out)
{
    struct xml_span rule, rest = now;
    int rc = buffer_add(out, "<LifecycleConfiguration" XMLNS ">");
    while (rc == 0 && xml_element(rest, "Rule", &rule, &rest))
        if (!xml_is(rule, "ID", RULE_ID))
            rc = buffer_printf(out, "<Rule>%.*s</Rule>", (int)rule.size, rule.at);
    return rc == 0
               ? buffer_printf(
                     out,
                     "<Rule><ID>" RULE_ID "</ID><Filter><Prefix></Prefix></Filter><Status>Enabled</Status>"
                     "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"
                     "<NoncurrentVersionExpiration><NoncurrentDays>%d</NoncurrentDays>"
                     "</NoncurrentVersionExpiration><AbortIncompleteMultipartUpload><DaysAfterInitiation>%d"
                     "</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></"
                     "LifecycleConfiguration>",
                     b->old_days, UPLOAD_DAYS)
               : rc;
}

static bool
is_lifecycle_kept(const struct bucket *b, struct xml_span now)
{
    char days[16], upload_days[16], prefix[8];
    struct xml_span rule;

    snprintf(days, sizeof(days), "%d", b->old_days);
    snprintf(upload_days, sizeof(upload_days), "%d", UPLOAD_DAYS);
    while (xml_element(now, "Rule", &rule, &now))
        if (xml_is(rule, "ID", RULE_ID)) {
            xml_copy(rule, "Prefix", prefix, sizeof(prefix));
            return !*prefix && xml_is(rule, "Status", "Enabled") && xml_is(rule, "NoncurrentDays", days) &&
                   xml_is(rule, "DaysAfterInitiation", upload_days);
        }
    return false;
}

static const struct {
    const char *name; /* as --without and messages have it */
    const char *part; /* of the bucket, as S3 has it */
    int (*write)(const struct bucket *b, struct xml_span now, struct buffer *out);
    bool (*is_kept)(const struct bucket *b, struct xml_span now);
} settings[] = {
    { "public-access-block", "publicAccessBlock", write_access, is_access_kept },
    { "encryption", "encryption", write_encryption, is_encryption_kept },
    { "versioning", "versioning", write_versioning, is_versioning_kept },
    { "lifecycle", "lifecycle", write_lifecycle, is_lifecycle_kept },
};

/* --- the command line --- */

enum { OPT_REGION = 512, OPT_URL, OPT_DAYS, OPT_WITHOUT, OPT_CHECK, OPT_JSON };

static const struct argp_option options[] = {
    { "region", OPT_REGION, "NAME", 0, "Where it is (or AWS_REGION, AWS_DEFAULT_REGION; default us-east-1)",
      0 },
    { "service", OPT_URL, "URL", 0,
      "Another S3 service than AWS's own (or AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)", 0 },
    { "keep-old", OPT_DAYS, "DAYS", 0, "How long a version that was replaced or deleted is kept (default 30)",
      0 },
    { "without", OPT_WITHOUT, "LIST", 0,
      "What the service cannot do: public-access-block, encryption, versioning, lifecycle", 0 },
    { "check", OPT_CHECK, NULL, 0, "Change nothing; tell what differs (status 1)", 0 },
    { "json", OPT_JSON, NULL, 0, "One document: name, what to export, policy", 0 },
    { 0 },
};

static unsigned
read_without(const char *list, struct argp_state *state)
{
    unsigned bits = 0;
    for (const char *at = list; *at; at += *at == ',') {
        size_t size = strcspn(at, ","), i = 0;
        while (i < ARRAY_LEN(settings) &&
               (strlen(settings[i].name) != size || strncmp(at, settings[i].name, size) != 0))
            i++;
        if (i == ARRAY_LEN(settings))
            argp_error(state, "--without: there is no setting \"%.*s\"", (int)size, at);
        bits |= 1U << i;
        at += size;
    }
    return bits;
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct bucket *b = state->input;
    const char *why;
    switch (key) {
    case OPT_REGION:
        b->account.region = arg;
        return 0;
    case OPT_URL:
        b->account.url = arg;
        return 0;
    case OPT_DAYS:
        b->old_days = option_int(state, "--keep-old", arg, 1, 36500);
        return 0;
    case OPT_WITHOUT:
        b->without = read_without(arg, state);
        return 0;
    case OPT_CHECK:
        b->is_check = true;
        return 0;
    case OPT_JSON:
        b->is_json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (b->name)
            return ARGP_ERR_UNKNOWN;
        b->name = arg;
        return 0;
    case ARGP_KEY_END:
        if (!b->name)
            argp_error(state, "which bucket?");
        else if (!s3_is_name(b->name, &why))
            argp_error(state, "\"%s\" is no name for a bucket: %s", b->name, why);
        else if (!*b->account.region || strlen(b->account.region) > 32 ||
                 b->account.region[strspn(b->account.region, "abcdefghijklmnopqrstuvwxyz0123456789-")])
            argp_error(state, "\"%s\" is no region", b->account.region);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    "NAME",
    "Make an encrypted, versioned S3 bucket with lifecycle rules, or bring one that is there to this state. "
    "Credentials are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary ones, AWS_SESSION_TOKEN.",
    NULL,
    NULL,
    NULL
};

/* --- what is done --- */

/* *is_there: the bucket exists. ERR_INPUT: it cannot be looked at. */
static int
look(const struct bucket *b, bool *is_there, struct error *err)
{
    struct s3_answer a = S3_ANSWER_INIT;
    int rc = s3_call(b->s3, "GET", "versioning", NULL, &a, err);
    *is_there = a.status == 200;
    if (rc == 0 && a.status != 200 && strcmp(a.code, "NoSuchBucket") != 0)
        rc = s3_refusal(b->s3, &a, err);
    s3_answer_release(&a);
    return rc;
}

/* Make it. For one that is there this asks whose it is. */
static int
create(const struct bucket *b, struct error *err)
{
    char document[256] = "";
    struct s3_answer a = S3_ANSWER_INIT;

    if (strcmp(b->account.region, "us-east-1") != 0)
        snprintf(document, sizeof(document),
                 "<CreateBucketConfiguration" XMLNS
                 "><LocationConstraint>%.32s</LocationConstraint></CreateBucketConfiguration>",
                 b->account.region);
    int rc = s3_call(b->s3, "PUT", NULL, document, &a, err);
    if (rc == 0 && a.status != 200 && strcmp(a.code, "BucketAlreadyOwnedByYou") != 0)
        rc = s3_refusal(b->s3, &a, err);
    s3_answer_release(&a);
    return rc;
}

/* Is setting i as wanted? now gets the answer. A service that says "not set" or "not known" has not; one that refuses is an error. */
static int
read_setting(const struct bucket *b, size_t i, struct s3_answer *now, bool *is_kept, struct error *err)
{
    int rc = s3_call(b->s3, "GET", settings[i].part, NULL, now, err);
    *is_kept = rc == 0 && now->status == 200 && settings[i].is_kept(b, s3_document(now));
    if (rc == 0 && (now->status == 401 || now->status == 403 || strcmp(now->code, "NoSuchBucket") == 0)) {
        rc = s3_refusal(b->s3, now, err);
        error_prefix(err, "%s", settings[i].name);
    }
    return rc;
}

/* Sent, and read back until it is there; ERR_CONFLICT: the service did not keep it. */
static int
apply_setting(const struct bucket *b, size_t i, struct xml_span now, struct error *err)
{
    char said[96] = "";
    bool is_kept = false;
    struct s3_answer a = S3_ANSWER_INIT;
    AUTO_BUFFER struct buffer document = BUFFER_INIT;

    if (settings[i].write(b, now, &document) != 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    int rc = s3_call(b->s3, "PUT", settings[i].part, document.data, &a, err);
    if (rc == 0 && (a.status == 401 || a.status == 403)) {
        rc = s3_refusal(b->s3, &a, err);
        error_prefix(err, "%s", settings[i].name);
    }
    if (a.status >= 300)
        snprintf(said, sizeof(said), " (it answers %ld %.40s)", a.status, a.code);
    for (int looks = 0; rc == 0 && !is_kept && looks < LOOKS; looks++) {
        if (looks > 0)
            trainer_pause(0.5 * looks);
        s3_answer_release(&a);
        rc = read_setting(b, i, &a, &is_kept, err);
    }
    s3_answer_release(&a);
    if (rc == 0 && !is_kept)
        rc = error_set(err, ERR_CONFLICT,
                       "bucket %s: the service did not keep %s%s; --without=%s if it may be without", b->name,
                       settings[i].name, said, settings[i].name);
    return rc;
}

/* Rules of others that end what they did not make. */
static void
warn_of_rules(struct xml_span now)
{
    struct xml_span rule, expiration;
    char id[80];
    while (xml_element(now, "Rule", &rule, &now)) {
        if (xml_is(rule, "ID", RULE_ID) || !xml_is(rule, "Status", "Enabled") ||
            !xml_element(rule, "Expiration", &expiration, NULL) ||
            xml_is(expiration, "ExpiredObjectDeleteMarker", "true"))
            continue;
        xml_copy(rule, "ID", id, sizeof(id));
        fprintf(stderr, "trainer: the lifecycle rule \"%s\" deletes objects, checkpoints as well\n", id);
    }
}

/* All settings: looked at and, but for --check, brought about. *differs counts those that were not as wanted. */
static int
settle(const struct bucket *b, bool is_new, int *differs, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(settings) && rc == 0; i++) {
        struct s3_answer now = S3_ANSWER_INIT;
        bool is_kept = false;
        if (b->without >> i & 1)
            continue;
        rc = read_setting(b, i, &now, &is_kept, err);
        if (rc == 0 && settings[i].write == write_lifecycle && now.status == 200)
            warn_of_rules(s3_document(&now));
        if (rc == 0 && !is_kept) {
            (*differs)++;
            struct xml_span none = { "", 0 };
            if (!is_new)
                fprintf(stderr, "trainer: %s of %s %s\n", settings[i].name, b->name,
                        b->is_check ? "is not as wanted" : "was not as wanted, and is set");
            if (!b->is_check)
                rc = apply_setting(b, i, now.status == 200 ? s3_document(&now) : none, err);
        }
        s3_answer_release(&now);
    }
    return rc;
}

/* --- what is printed --- */

static const char *
partition_of(const char *region)
{
    return strncmp(region, "cn-", 3) == 0       ? "aws-cn"
           : strncmp(region, "us-gov-", 7) == 0 ? "aws-us-gov"
                                                : "aws";
}

/* What sync, resume and the probe need: to list, read and write; not to delete, nor to change the bucket. */
static json_t *
policy_of(const struct bucket *b)
{
    char bucket[128], objects[sizeof(bucket) + 2];
    snprintf(bucket, sizeof(bucket), "arn:%s:s3:::%.63s", partition_of(b->account.region), b->name);
    snprintf(objects, sizeof(objects), "%s/*", bucket);
    return json_pack("{s:s, s:[{s:s, s:s, s:[s], s:s}, {s:s, s:s, s:[s,s,s], s:s}]}", "Version", "2012-10-17",
                     "Statement", "Sid", "List", "Effect", "Allow", "Action", "s3:ListBucket", "Resource",
                     bucket, "Sid", "CopyAndRestore", "Effect", "Allow", "Action", "s3:GetObject",
                     "s3:PutObject", "s3:AbortMultipartUpload", "Resource", objects);
}

/* The name, and rclone's remote "s3", whose credentials are the environment's. */
static json_t *
exports_of(const struct bucket *b)
{
    char remote[128];
    snprintf(remote, sizeof(remote), "s3:%.63s/run", b->name);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*}", "REMOTE", remote, "RCLONE_CONFIG_S3_TYPE", "s3",
                     "RCLONE_CONFIG_S3_PROVIDER", b->account.url ? "Other" : "AWS",
                     "RCLONE_CONFIG_S3_ENV_AUTH", "true", "RCLONE_CONFIG_S3_REGION", b->account.region,
                     "RCLONE_CONFIG_S3_ENDPOINT", b->account.url);
}

static int
tell(const struct bucket *b, struct error *err)
{
    const char *name;
    json_t *value;
    AUTO_JSON json_t *policy = policy_of(b), *exports = exports_of(b);
    AUTO_JSON json_t *document = json_pack("{s:s, s:s, s:O, s:O}", "bucket", b->name, "region",
                                           b->account.region, "export", exports, "policy", policy);
    if (!document)
        return error_set(err, ERR_NOMEM, "out of memory");
    if (!b->is_json)
        json_object_foreach(exports, name, value) printf("export %s=%s\n", name, json_string_value(value));
    json_dumpf(b->is_json ? document : policy, stdout, JSON_INDENT(2));
    putchar('\n');
    return 0;
}

static int
settle_bucket(struct bucket *b, int *differs, struct error *err)
{
    bool is_there = false;
    int rc = s3_new(&b->account, b->name, &b->s3, err);
    rc = rc == 0 ? look(b, &is_there, err) : rc;
    if (rc == 0 && b->is_check && !is_there)
        return error_set(err, ERR_CONFLICT, "there is no bucket %s", b->name);
    if (rc == 0 && !b->is_check)
        rc = create(b, err);
    rc = rc == 0 ? settle(b, !is_there, differs, err) : rc;
    if (rc == 0 && *differs == 0)
        fprintf(stderr, "trainer: bucket %s is as wanted already\n", b->name);
    else if (rc == 0 && !is_there)
        fprintf(stderr, "trainer: bucket %s is made, in %s\n", b->name, b->account.region);
    return rc;
}

static const char *
first_of(const char *one, const char *other, const char *otherwise)
{
    const char *value = getenv(one);
    if (!value || !*value)
        value = other ? getenv(other) : NULL;
    return value && *value ? value : otherwise;
}

int
bucket_command(struct trainer *t, int argc, char **argv)
{
    struct error err = { 0 };
    int differs = 0;
    struct bucket b = { .trainer = t, .old_days = 30 };

    b.account = (struct s3_account){
        .url = first_of("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL),
        .region = first_of("AWS_REGION", "AWS_DEFAULT_REGION", "us-east-1"),
        .key_id = first_of("AWS_ACCESS_KEY_ID", NULL, NULL),
        .secret = first_of("AWS_SECRET_ACCESS_KEY", NULL, NULL),
        .token = first_of("AWS_SESSION_TOKEN", NULL, NULL),
    };
    argp_parse(&argp, argc, argv, 0, NULL, &b);
    if (!b.account.key_id || !b.account.secret)
        return trainer_complain(
            TRAINER_CONFIG,
            "no credentials: %s is not set (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, "
            "for temporary ones, AWS_SESSION_TOKEN)",
            b.account.key_id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    int rc = settle_bucket(&b, &differs, &err);
    s3_free(b.s3);
    if (rc == 0 && !(b.is_check && differs))
        rc = tell(&b, &err);
    if (rc == ERR_CONFLICT)
        return trainer_complain(TRAINER_FAILED, "%s", err.text);
    if (rc != 0)
        return trainer_failed(&err);
    return b.is_check && differs ? TRAINER_FAILED : TRAINER_OK;
}
