/*
 * alone.h - who has the house to himself: a submission that failed in a way for which a neighbour may be to blame is
 * judged once more with nothing beside it. Once it is due nothing else begins; it begins when all that runs is through,
 * and the next begins when it is done. What all that may cost is a share of the time. Pure: it knows no clock.
 */
#ifndef QUEUE_ALONE_H
#define QUEUE_ALONE_H

#include <stdbool.h>
#include <stdint.h>

#define ALONE_SHARE 0.1     /* of the time, for which everybody else waits */
#define ALONE_WINDOW_S 1800 /* what was not used of it is kept so long */
#define ALONE_USUAL_S 30    /* what one is expected to take, while none was measured */

/* Part of what is to be judged alone. All zero at first. */
struct alone_turn {
    bool is_promised;
    double charged_s; /* what it was expected to take */
};

/* All zero at first. */
struct alone {
    const struct alone_turn *due;    /* next, and waits until nothing runs; NULL: nobody */
    const struct alone_turn *holder; /* has begun; NULL: nobody */
    int64_t since_ns;                /* since when others wait for either */
    int64_t counted_ns;              /* up to when left_s holds; 0: never asked yet */
    double left_s;                   /* of the share */
    double usual_s;                  /* smoothed; 0: none was measured */
    double held_s;                   /* that others waited, since the start */
};

/* Whether t may be judged alone: then what it is expected to take is set aside, until alone_end(). */
bool alone_promise(struct alone *a, struct alone_turn *t, int64_t now_ns);
/* It is t's turn: nobody else may begin from now on. Nothing happens where another is due or holds the house. */
void alone_becomes_due(struct alone *a, const struct alone_turn *t, int64_t now_ns);
/* Whether t, or (NULL) one that needs not be alone, may begin, when so many others run. */
bool alone_may_begin(const struct alone *a, const struct alone_turn *t, int64_t running);
/* t was due, and has begun. */
void alone_begin(struct alone *a, const struct alone_turn *t);
/* t neither waits for its turn nor runs any more; nothing happens where it did neither. */
void alone_end(struct alone *a, struct alone_turn *t, int64_t now_ns);

#endif
