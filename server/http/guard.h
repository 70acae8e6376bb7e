/*
 * guard.h - refuses requests whose framing can be read in two ways. Pure.
 *
 * libmicrohttpd 0.9.75 takes the first of several Content-Length headers,
 * accepts a Content-Length together with a Transfer-Encoding, and more of the
 * kind; a proxy in front may read the same bytes otherwise. A doubtful request
 * gets 400, and the connection ends. Pass every header, then ask for the verdict.
 */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard {
    bool is_http10;
    unsigned hosts, lengths, encodings; /* headers seen of each */
    bool is_chunked;
    uint64_t length; /* bytes of the body by Content-Length; 0 when there is none */
    const char *why; /* the first thing found, a constant; NULL: none */
};

/* The parts of the request line: "GET", "/v1/tasks?limit=3", "HTTP/1.1"; borrowed. */
void guard_init(struct guard *g, const char *method, const char *target, const char *version);
/* name and value are borrowed; the sizes show whether a NUL is inside. */
void guard_header(struct guard *g, const char *name, size_t name_size, const char *value, size_t value_size);
/* NULL, or why the request is refused: a constant text. */
const char *guard_verdict(const struct guard *g);
/*
 * Whether the value of a Host header is an address or localhost, with or without a port. A page of another site
 * cannot make its browser send such a value, whatever its own name resolves to.
 */
bool guard_host_is_local(const char *host);

#endif
