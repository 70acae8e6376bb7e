/*
 * encoding.h - bodies that come compressed (Content-Encoding). Pure; any
 * thread. What comes out is bounded, whatever its size says of itself, and so
 * is the memory that it takes: a window of at most 8 MiB (RFC 9659).
 */
#ifndef HTTP_ENCODING_H
#define HTTP_ENCODING_H

#include <stddef.h>

#include "common/buffer.h"
#include "common/error.h"

enum encoding { ENCODING_NONE, ENCODING_GZIP, ENCODING_ZSTD, ENCODING_UNKNOWN };

/* What a header's value names; NULL, "" and "identity" are none, two of them one after the other are unknown. */
enum encoding encoding_find(const char *value);
/*
 * Undo it, appended to out (empty; the caller's, also after a failure). 0, ERR_INPUT (no such stream, or one that is cut
 * short), ERR_FULL (more than max bytes) or ERR_NOMEM.
 */
int encoding_undo(enum encoding encoding, const char *bytes, size_t size, size_t max, struct buffer *out,
                  struct error *err);

#endif
