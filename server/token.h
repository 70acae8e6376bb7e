/*
 * token.h - which callers are admitted: tokens with scopes, stored as hashes in a
 * file. `verifierd token` edits the file; the daemon reads it again
 * whenever it changes. Any thread, one at a time for each file.
 */
#ifndef SERVER_TOKEN_H
#define SERVER_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Bits. Admin may do all that the others may, and for every client. */
enum scope { SCOPE_SUBMIT = 1, SCOPE_READ = 2, SCOPE_ADMIN = 4, SCOPE_ALL = 7 };

#define SCOPES_TEXT_SIZE 24
/* "submit,read" to bits. 0, or ERR_INPUT: an unknown word, or none. */
int scopes_parse(const char *text, unsigned *out, struct error *err);
void scopes_text(unsigned scopes, char out[SCOPES_TEXT_SIZE]);

#define TOKEN_NAME_SIZE 65 /* 1 to 64 of A-Z a-z 0-9 . _ - and NUL; a client's name too */
bool token_name_is_valid(const char *name);

#define TOKEN_TEXT_SIZE 47 /* "vd_", 43 characters of base64 for 256 random bits, NUL */
#define TOKEN_HASH_SIZE 32 /* BLAKE2b of the text */

struct token {
    char name[TOKEN_NAME_SIZE];   /* of the token: unique */
    char client[TOKEN_NAME_SIZE]; /* the client whose submissions it makes and sees */
    unsigned scopes;
    unsigned char hash[TOKEN_HASH_SIZE];
    int64_t created_ms, expires_ms; /* wall clock; 0: never */
};

struct token_list {
    struct token *rows;
    size_t n;
};
#define TOKENS_MAX 10000

void token_list_release(struct token_list *list);
/* Read the file. 0, ERR_NOTFOUND (no file), ERR_INPUT (err has the place), ERR_SYS or ERR_NOMEM; out is empty then. */
int token_list_load(const char *path, struct token_list *out, struct error *err);

/*
 * The token with that text, or NULL: unknown, or expired by now_ms. View into list. Every row is compared, and each
 * in constant time: the time discloses nothing about the stored hashes.
 */
const struct token *token_find(const struct token_list *list, const char *text, int64_t now_ms);

/*
 * Make a token and add it to the file, which is made where there is none. row: name, client, scopes, expires_ms;
 * copied. text: the secret, kept nowhere else. 0, ERR_CONFLICT (the name is taken), ERR_FULL, or as token_list_load().
 */
int token_add(const char *path, const struct token *row, char text[TOKEN_TEXT_SIZE], struct error *err);
/* 0, ERR_NOTFOUND (no such name, no such file), or as token_list_load(). The file stays, also without tokens. */
int token_revoke(const char *path, const char *name, struct error *err);

/* --- the daemon's view of the file --- */

struct keyring;

/* path is copied. 0; ERR_INPUT or ERR_SYS where there is a file that cannot be used; ERR_NOMEM. */
int keyring_new(const char *path, struct keyring **out, struct error *err);
void keyring_free(struct keyring *k); /* NULL is fine */
/* Read the file again if it has changed. A file that has gone or cannot be used is logged, and what was known stays. */
void keyring_refresh(struct keyring *k);
/* Whether calls need a token: there is a file, or was one since keyring_new(). */
bool keyring_is_on(const struct keyring *k);
/* As token_find(); view until the next refresh. */
const struct token *keyring_find(const struct keyring *k, const char *text);
/* Whether the token of this hash still counts: neither revoked nor expired. */
bool keyring_has(const struct keyring *k, const unsigned char hash[TOKEN_HASH_SIZE]);

#endif
