#include "server/http/guard.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

static void
guard_refuse(struct guard *g, const char *why)
{
    if (!g->why)
        g->why = why;
}

/* RFC 9110, section 5.6.2. */
static bool
is_token(const char *text, size_t size)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool is_alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_alnum && (c == '\0' || !strchr(others, c)))
            return false;
    }
    return size > 0;
}

void
guard_init(struct guard *g, const char *method, const char *target, const char *version)
{
    memset(g, 0, sizeof(*g));
    g->is_http10 = strcmp(version, "HTTP/1.0") == 0;
    if (!g->is_http10 && strcmp(version, "HTTP/1.1") != 0)
        guard_refuse(g, "the version is neither HTTP/1.1 nor HTTP/1.0");
    if (!is_token(method, strlen(method)))
        guard_refuse(g, "the method is no token");
    for (; *target; target++)
        if ((unsigned char)*target <= ' ' || *target == 0x7f)
            guard_refuse(g, "the address has a space or a control character in it");
}

static void
guard_length(struct guard *g, const char *value, size_t size)
{
    g->lengths++;
    g->length = 0;
    /* 18 digits cannot overflow, and no body is that long. */
    if (size == 0 || size > 18) {
        guard_refuse(g, "Content-Length is not a number");
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (value[i] < '0' || value[i] > '9') {
            guard_refuse(g, "Content-Length is not a number");
            return;
        }
        g->length = g->length * 10 + (uint64_t)(value[i] - '0');
    }
}

static void
guard_encoding(struct guard *g, const char *value)
{
    g->encodings++;
    g->is_chunked = strcasecmp(value, "chunked") == 0;
    if (!g->is_chunked)
        guard_refuse(g, "Transfer-Encoding is not \"chunked\"");
}

void
guard_header(struct guard *g, const char *name, size_t name_size, const char *value, size_t value_size)
{
    if (!value) {
        value = "";
        value_size = 0;
    }
    if (!is_token(name, name_size)) {
        guard_refuse(g, "a header has a name that is no token");
        return;
    }
    for (size_t i = 0; i < value_size; i++)
        if ((unsigned char)value[i] < ' ' && value[i] != '\t')
            guard_refuse(g, "a header has a control character in its value");
    if (name_size == 4 && strncasecmp(name, "Host", 4) == 0)
        g->hosts++;
    else if (name_size == 14 && strncasecmp(name, "Content-Length", 14) == 0)
        guard_length(g, value, value_size);
    else if (name_size == 17 && strncasecmp(name, "Transfer-Encoding", 17) == 0)
        guard_encoding(g, value);
}

const char *
guard_verdict(const struct guard *g)
{
    if (g->why)
        return g->why;
    if (g->lengths > 1)
        return "there is more than one Content-Length";
    if (g->encodings > 1)
        return "there is more than one Transfer-Encoding";
    if (g->lengths && g->encodings)
        return "there are both a Content-Length and a Transfer-Encoding";
    if (g->encodings && g->is_http10)
        return "HTTP/1.0 has no Transfer-Encoding";
    if (g->hosts > 1 || (g->hosts == 0 && !g->is_http10))
        return "there is not exactly one Host";
    return NULL;
}

static bool
is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 5 && !text[digits];
}

bool
guard_host_is_local(const char *host)
{
    char name[64];
    struct in6_addr address;
    bool is_ipv6 = *host == '[';
    size_t size = strcspn(host, is_ipv6 ? "]" : ":");
    const char *rest = host + size + (is_ipv6 && host[size] ? 1 : 0);

    if (size >= sizeof(name) || (is_ipv6 && !host[size]) || (*rest && (*rest != ':' || !is_port(rest + 1))))
        return false;
    memcpy(name, host + is_ipv6, size - is_ipv6);
    name[size - is_ipv6] = '\0';
    if (is_ipv6)
        return inet_pton(AF_INET6, name, &address) == 1;
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, &address) == 1;
}
