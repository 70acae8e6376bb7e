/* s3.h - signed requests to an S3 service about one bucket (Signature Version 4, by libcurl). Blocking; one thread. */
#ifndef TRAINER_S3_H
#define TRAINER_S3_H

#include <stdbool.h>

#include "common/buffer.h"
#include "common/error.h"
#include "common/xml.h"

struct s3;

/* Strings are borrowed for as long as the struct s3 lives. */
struct s3_account {
    const char *url;    /* of the service, no trailing slash needed; NULL: AWS's own of the region */
    const char *region; /* what requests are signed for */
    const char *key_id, *secret;
    const char *token; /* of temporary credentials; NULL: none */
};

/* May a bucket have this name, on AWS and in an https address? False: why gets a sentence without the name. */
bool s3_is_name(const char *name, const char **why);

/* bucket: a name as above, borrowed. ERR_NOMEM, or ERR_INPUT: the url is no http:// or https:// address. */
int s3_new(const struct s3_account *account, const char *bucket, struct s3 **out, struct error *err);
void s3_free(struct s3 *s); /* NULL is fine */

struct s3_answer {
    long status;
    char code[64];   /* S3's name of what is wrong: "NoSuchBucket"; "" where it said none */
    char region[32]; /* where the bucket is, when the request went elsewhere; "" otherwise */
    struct buffer body;
};
#define S3_ANSWER_INIT \
    {                  \
        .status = 0    \
    }
void s3_answer_release(struct s3_answer *a);
struct xml_span s3_document(const struct s3_answer *a);

/*
 * GET or PUT the bucket itself (part NULL) or a part of it ("versioning"). document: XML to send, NULL or "" for none.
 * 0 whenever an answer came, whatever its status; what stands for a moment only (a bucket that is just made, a server that
 * is busy) was asked again, some seconds long. ERR_UNAVAILABLE: no answer came.
 */
int s3_call(struct s3 *s, const char *method, const char *part, const char *document, struct s3_answer *out,
            struct error *err);
/* What an answer that is no success means, with the bucket's name and what to do. ERR_INPUT always. */
int s3_refusal(const struct s3 *s, const struct s3_answer *a, struct error *err);

#endif
