/* answers.h - what several handlers answer. Private to http/. Loop thread. */
#ifndef HTTP_ANSWERS_H
#define HTTP_ANSWERS_H

#include "server/http/exchange.h"
#include "server/store/labels.h"

/* A refusal of the funnel as its problem; false when the answer is FUNNEL_OK and nothing was sent. */
bool exchange_refused(struct exchange *x, const struct funnel_answer *answer);
/*
 * Of a POST that makes a submission or group (what): then is called with x->id, once a line of the log ties that to its
 * request, and to the caller's trace (traceparent); or again, where another request made it; or the refusal is sent.
 */
void exchange_made(struct exchange *x, const struct funnel_answer *answer, const char *what,
                   exchange_cb *again, exchange_cb *then);
/*
 * For a response about a resource that a POST made, below this path: its location, and which preferences were applied.
 */
void exchange_accept_headers(struct exchange *x, const char *path);
#define LIMIT_MAX 200 /* rows of a page */
/* limit=, 1 to LIMIT_MAX, 50 when absent; 0: the problem is sent. */
int exchange_limit(struct exchange *x);
/*
 * cursor= of a list by time, TIME.KEY: before_ms and key (view), or INT64_MAX and "" where there is none. False: the problem is
 * sent.
 */
bool exchange_cursor(struct exchange *x, int64_t *before_ms, const char **key);
/* A page that is read: its rows go into call.items. */
struct page_read {
    struct exchange_read call;
    char scope[STORE_SCOPE_SIZE]; /* of the submissions that are counted */
    int limit;
    bool has_more;
    char last[LABEL_MAX_CHARS * 4 + 32]; /* the cursor of the last row */
};
/* As exchange_read_new(); limit 0, for which a problem was sent: NULL. */
void *page_read_new(struct exchange *x, const struct exchange_read *call, size_t size, int limit);
/* Whether the page is full, so that there are more rows than it holds. */
bool page_is_full(struct page_read *p);
/* An answer of reads of pages. */
void page_answer(struct exchange *x, struct exchange_read *call);
/*
 * run= and step= of a list: run NULL where it is not asked for (view), step < 0 likewise; a step goes with a run. False:
 * the problem is sent.
 */
bool exchange_run(struct exchange *x, const char **run, int64_t *step);
/* policy_version=, which goes with a run too: NULL where it is not asked for (view). False: the problem is sent. */
bool exchange_policy_version(struct exchange *x, const char **version);
/* class=, one of those of verdicts: NULL where it is not asked for (view). False: the problem is sent. */
bool exchange_class(struct exchange *x, const char **class_);
/* {"items":[…],"next":…} with its Link header; items is taken, next may be NULL (a cursor, borrowed). */
void exchange_page(struct exchange *x, json_t *items, const char *next);
/* The same; items: the text between the brackets, taken and left empty. next contains nothing that needs escaping. */
void exchange_page_text(struct exchange *x, struct buffer *items, const char *next);

#endif
