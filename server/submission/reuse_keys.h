/*
 * reuse_keys.h - by what a verdict is found again: what makes two candidates identical, and what judged them. Loop thread
 * only, but for reuse_content() and reuse_fingerprint().
 */
#ifndef SUBMISSION_REUSE_KEYS_H
#define SUBMISSION_REUSE_KEYS_H

#include <stdbool.h>

#include <jansson.h>

#include "common/hash.h"

struct funnel;
struct attempt;
struct reuse_keys;
struct submission;
struct submission_row;

/* harness: the folder of the code that judges. NULL: no memory. */
struct reuse_keys *reuse_keys_new(const char *harness);
void reuse_keys_free(struct reuse_keys *k);   /* NULL is fine */
void reuse_keys_forget(struct reuse_keys *k); /* the settings have changed: what was hashed of them goes */

/* A hash that identical submissions share; "" if the request opts out. row, request: as they are first stored. */
void reuse_content(const struct submission_row *row, json_t *request, char out[HASH_TEXT_SIZE]);
/* The first 64 bits of a content, by chance equal for others; 0 for "". */
int64_t reuse_number(const char *content);
/* Of the code that judges: the daemon's version and the harness, file by file. */
void reuse_fingerprint(const char *harness, char out[HASH_TEXT_SIZE]);
/* The key of a content on device worker i; "" while the workers have not reported their versions. */
void reuse_key_on(struct funnel *f, int i, const char *content, char out[HASH_TEXT_SIZE]);
/* The environment that `ast` and `compile` depend on; "" while the workers have not reported their versions. */
void reuse_compiled_key(const struct funnel *f, char out[HASH_TEXT_SIZE]);
/* Whether its verdict depends on the candidate alone, and not on the moment. */
bool reuse_is_reusable(const struct attempt *j);
/* The key under which its verdict may be found later; "": not at all. s->attempt has its row filled in. */
void reuse_key(const struct submission *s, char out[HASH_TEXT_SIZE]);

#endif
