#include "server/http/access.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <sodium.h>

#include "common/log.h"
#include "server/audit.h"
#include "common/utf8.h"
#include "server/verdict/disclosure.h"
#include "server/http/guard.h"

/*
 * Theory of operation. The token of a request is checked before anything
 * else of the request except its route. A resource that the caller may not
 * see and one that does not exist get the same response.
 */

#define BASIC_MAX 512
#define CLIENT_MAX_CHARS 200 /* of a body's "client" */

/* The text after "Bearer ", or NULL. View. */
static const char *
bearer(const char *header)
{
    if (!header || strncasecmp(header, "Bearer ", 7) != 0)
        return NULL;
    return header + 7 + strspn(header + 7, " \t");
}

/*
 * The password of "Basic …" into out, or the user where there is none: clients of other formats can be given no header,
 * but an address like http://trainer:vd_…@host. False: there is nothing of the kind.
 */
static bool
basic(const char *header, char out[BASIC_MAX])
{
    size_t size;

    if (!header || strncasecmp(header, "Basic ", 6) != 0)
        return false;
    header += 6 + strspn(header + 6, " ");
    if (sodium_base642bin((unsigned char *)out, BASIC_MAX - 1, header, strlen(header), " ", &size, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return false;
    out[size] = '\0';
    char *colon = strchr(out, ':');
    if (strlen(out) != size || !colon)
        return false;
    *colon = '\0';
    if (colon[1])
        memmove(out, colon + 1, strlen(colon + 1) + 1);
    return true;
}

/* RFC 6750: the challenge names what was wrong with the token; without one it names nothing. */
static void
refuse(struct exchange *x, enum problem problem, const char *challenge, const char *detail)
{
    exchange_problem_set(x, problem, detail, NULL);
    exchange_header(x, MHD_HTTP_HEADER_WWW_AUTHENTICATE, challenge);
    exchange_send(x);
}

static void
refuse_scope(struct exchange *x, const struct route *route)
{
    /* The least that would do. */
    unsigned least = route->scopes & SCOPE_SUBMIT ? SCOPE_SUBMIT
                     : route->scopes & SCOPE_READ ? SCOPE_READ
                                                  : SCOPE_ADMIN;
    char needed[SCOPES_TEXT_SIZE], had[SCOPES_TEXT_SIZE], challenge[128], detail[128];

    scopes_text(least, needed);
    scopes_text(x->caller.scopes, had);
    snprintf(challenge, sizeof(challenge),
             "Bearer realm=\"verifierd\", error=\"insufficient_scope\", scope=\"%s\"", needed);
    snprintf(detail, sizeof(detail), "this needs the scope %s, and the token has %s", needed, had);
    refuse(x, PROBLEM_FORBIDDEN, challenge, detail);
}

bool
access_check(struct exchange *x, const struct route *route, bool takes_basic)
{
    struct keyring *keyring = x->http->keyring;

    if (!route->scopes)
        return true;
    if (!keyring_is_on(keyring)) {
        /*
         * A page's name that was made to resolve to loopback passes the browser's check of origins; but the browser
         * sends that name in the Host header.
         */
        const char *host = MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
        if (host && !guard_host_is_local(host)) {
            exchange_problem(
                x, PROBLEM_HOST,
                "without tokens only requests to an address or to localhost are answered, and this "
                "one is to \"%.100s\"",
                host);
            return false;
        }
        x->caller = (struct caller){ .scopes = SCOPE_ALL };
        return true;
    }
    const struct header_found c = exchange_find_header(x, MHD_HTTP_HEADER_AUTHORIZATION);
    if (c.n == 0) {
        refuse(x, PROBLEM_UNAUTHORIZED, "Bearer realm=\"verifierd\"",
               "show a token: Authorization: Bearer vd_...");
        return false;
    }
    char password[BASIC_MAX];
    const char *text = c.n == 1 ? bearer(c.value) : NULL;
    /* Nowhere else: browsers send it by themselves. */
    if (!text && c.n == 1 && takes_basic && basic(c.value, password))
        text = password;
    const struct token *token = text ? keyring_find(keyring, text) : NULL;
    if (!token) {
        refuse(x, PROBLEM_UNAUTHORIZED, "Bearer realm=\"verifierd\", error=\"invalid_token\"",
               text && *text ? "the token is unknown, revoked or expired"
                             : "a token is shown once, and here as Authorization: Bearer vd_...");
        return false;
    }
    x->caller.scopes = token->scopes;
    x->caller.has_token = true;
    memcpy(x->caller.token_hash, token->hash, sizeof(token->hash));
    snprintf(x->caller.client, sizeof(x->caller.client), "%s", token->client);
    if (token->scopes & route->scopes)
        return true;
    refuse_scope(x, route);
    return false;
}

bool
access_sees_client(const struct exchange *x, const char *client)
{
    const char *own = exchange_client(x);
    return !own || (client && strcmp(client, own) == 0);
}

bool
access_sees_detail(const struct exchange *x)
{
    return x->caller.scopes & (SCOPE_READ | SCOPE_ADMIN);
}

json_t *
access_view(const struct exchange *x, json_t *document)
{
    if (access_sees_detail(x))
        return document;
    json_t *view = disclosure_view(document);
    json_decref(document);
    return view;
}

void
access_stamp(struct exchange *x)
{
    json_t *told = json_object_get(x->document, "client");
    const char *name = json_string_value(told);
    /* An invalid name is refused by the function that reads the body. */
    bool is_name = name && *name && strlen(name) == json_string_length(told) &&
                   utf8_length(name, strlen(name)) <= CLIENT_MAX_CHARS;

    if (*x->caller.client && json_is_object(x->document) && (!told || json_is_null(told) || is_name))
        json_object_set_new(x->document, "client", json_string(x->caller.client));
}

void
access_note(const struct exchange *x, const char *action, const char *object)
{
    struct error err = { 0 };

    if (audit_write(x->http->config->tokens, *x->caller.client ? x->caller.client : "operator", action,
                    object, x->request_id, &err) != 0)
        log_error(x->request_id, "%s %s is not in the audit trail: %s", action, object ? object : "",
                  err.text);
}
