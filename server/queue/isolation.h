/*
 * isolation.h - isolated reruns: a submission that failed in a way for which a neighbour may be to blame is judged once
 * more with nothing concurrent. Once it is due nothing else begins; it begins when nothing runs any more, and the others
 * begin when it has ended. The cost is bounded by a share of the time. Pure: it reads no clock.
 */
#ifndef QUEUE_ISOLATION_H
#define QUEUE_ISOLATION_H

#include <stdbool.h>
#include <stdint.h>

#define ISOLATION_SHARE 0.1     /* of the time, in which all other jobs wait */
#define ISOLATION_WINDOW_S 1800 /* unused time of the share is kept this long */
#define ISOLATION_USUAL_S 30    /* expected time of one, while none was measured */

/* Embedded in the job that is rerun. All zero at first. */
struct isolated_rerun {
    bool is_promised;
    double charged_s; /* its expected time */
};

/* All zero at first. */
struct isolation {
    const struct isolated_rerun *due;   /* next, and waits until nothing runs; NULL: none */
    const struct isolated_rerun *begun; /* has begun; NULL: none */
    int64_t since_ns;                   /* since when others wait for either */
    int64_t counted_ns;                 /* up to when left_s holds; 0: never asked yet */
    double left_s;                      /* of the share */
    double usual_s;                     /* smoothed; 0: none was measured */
    double held_s;                      /* that others waited, since the start */
};

/* Whether r gets an isolated rerun: then the time that it is expected to take is reserved until isolation_end(). */
bool isolation_promise(struct isolation *a, struct isolated_rerun *r, int64_t now_ns);
/* r is next: nothing else may begin from now on. Nothing happens where another is due or has begun. */
void isolation_becomes_due(struct isolation *a, const struct isolated_rerun *r, int64_t now_ns);
/* Whether r, or (NULL) a job that needs no isolation, may begin while `running` others run. */
bool isolation_may_begin(const struct isolation *a, const struct isolated_rerun *r, int64_t running);
/* r was due, and has begun. */
void isolation_begin(struct isolation *a, const struct isolated_rerun *r);
/* r no longer waits or runs; nothing happens where it did neither. */
void isolation_end(struct isolation *a, struct isolated_rerun *r, int64_t now_ns);

#endif
