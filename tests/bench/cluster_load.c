/*
 * cluster_load.c - simulated nodes for cluster.py: each is a thread with the back end of a daemon, and judges nothing. It
 * stores groups, claims what waits and ends it, as a daemon's writer does, one transaction for what has gathered.
 *
 *   cluster_load URL NODES SECONDS [CLIENTS]
 *
 * CLIENTS: a submission of each waits when it begins, and what is stored then is anybody's of them.
 *
 * Prints one JSON line.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/ids.h"
#include "server/store/changes.h"
#include "server/store/pgsql/open.h"

#define BATCH 8           /* submissions in a group, and claims in a transaction */
#define SOURCE_BYTES 2496 /* 16 at a time */
#define CLAIMS_MAX 200000
#define NODES_MAX 500

struct node {
    pthread_t thread;
    struct store_backend *backend;
    char name[STORE_NODE_SIZE];
    struct store_claim claims[BATCH];
    size_t n; /* of them */
    long verdicts, again;
    double *claim_ms;
    size_t nclaims, room;
};

static const char *url;
static char verdict[2048], task_id[HASH_TEXT_SIZE];
static atomic_bool is_over;
static int nclients;

static void
check(int rc, const struct error *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "cluster_load: %s\n", err->text);
    exit(1);
}

/* first: the number of the first one's client; < 0: any. */
static int
add_group_of(struct node *n, int first, struct error *err)
{
    struct submission_row rows[BATCH];
    struct store_source sources[BATCH];
    char texts[BATCH][SOURCE_BYTES + 1], clients[BATCH][16];
    struct group_row group = { .request = (char *)"{}", .size = BATCH, .created_ms = clock_wall_ms() };

    id_new(group.id);
    memcpy(group.task_id, task_id, sizeof(task_id));
    for (int i = 0; i < BATCH; i++) {
        struct submission_row *row = &rows[i];
        *row = (struct submission_row){ .group_index = i, .request = (char *)"{\"until\":\"full\"}" };
        id_new(row->id);
        memcpy(row->group_id, group.id, ID_SIZE);
        memcpy(row->task_id, task_id, sizeof(task_id));
        row->created_ms = group.created_ms;
        snprintf(clients[i], sizeof(clients[i]), "client-%06d",
                 first < 0 ? (int)(random_u64() % (unsigned)(nclients + !nclients)) : first + i);
        if (nclients > 0)
            row->client = clients[i];
        for (int at = 0; at < SOURCE_BYTES; at += 16)
            snprintf(texts[i] + at, 17, "%016llx", (unsigned long long)random_u64());
        sources[i] = (struct store_source){ .text = texts[i], .size = SOURCE_BYTES };
        hash_text(texts[i], SOURCE_BYTES, row->source_hash);
    }
    return change_add_submissions(
        n->backend, &(struct store_intake){ .group = &group, .rows = rows, .sources = sources, .n = BATCH },
        err);
}

static int
add_group(struct node *n, struct error *err)
{
    return add_group_of(n, -1, err);
}

static int
add_clients(struct node *n, struct error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < nclients; i += BATCH)
        rc = add_group_of(n, i, err);
    return rc;
}

static int
claim(struct node *n, struct error *err)
{
    const struct backend_ops *ops = n->backend->ops;
    struct store_order o = { .lease = *ops->lease(n->backend), .most = BATCH };
    int rc = ops->owns->claim_next(n->backend, &o, err);

    n->n = o.n;
    memcpy(n->claims, o.got, o.n * sizeof(o.got[0]));
    return rc == ERR_NOTFOUND ? 0 : rc;
}

static int
finish(struct node *n, struct error *err)
{
    struct submission_row row = { .state = SUBMISSION_DONE,
                                  .stage = (char *)"timing",
                                  .class_ = (char *)"ok",
                                  .reward = 0.5,
                                  .verdict = verdict };

    row.finished_ms = clock_wall_ms();
    for (size_t i = 0; i < n->n; i++) {
        memcpy(row.id, n->claims[i].id, ID_SIZE);
        row.claim = n->claims[i].number;
        int rc = change_finish(n->backend, &row, NULL, 0, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* As a daemon's writer: made again where another session was waited for in vain. */
static void
transact(struct node *n, int (*apply)(struct node *n, struct error *err))
{
    const struct backend_ops *ops = n->backend->ops;
    struct error err;
    int rc;

    do {
        rc = ops->begin(n->backend, &err);
        if (rc == 0)
            rc = apply(n, &err);
        if (rc == 0)
            rc = ops->commit(n->backend, &err);
        if (rc != ERR_UNAVAILABLE)
            check(rc, &err);
        if (rc != 0) {
            n->again++;
            ops->rollback(n->backend);
        }
    } while (rc != 0);
}

static void *
work(void *arg)
{
    struct node *n = arg;

    while (!atomic_load(&is_over)) {
        transact(n, add_group);
        int64_t begun_ns = clock_monotonic_ns();
        transact(n, claim);
        if (n->n > 0 && n->nclaims < n->room)
            n->claim_ms[n->nclaims++] = (double)(clock_monotonic_ns() - begun_ns) / 1e6 / (double)n->n;
        transact(n, finish);
        n->verdicts += (long)n->n;
    }
    return NULL;
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void
print(const struct node *nodes, int n, double seconds)
{
    static double all[CLAIMS_MAX];
    size_t nclaims = 0;
    long verdicts = 0, again = 0;

    for (int i = 0; i < n; i++) {
        verdicts += nodes[i].verdicts;
        again += nodes[i].again;
        for (size_t j = 0; j < nodes[i].nclaims && nclaims < CLAIMS_MAX; j++)
            all[nclaims++] = nodes[i].claim_ms[j];
    }
    qsort(all, nclaims, sizeof(all[0]), compare);
    printf("{\"simulated\": %d, \"clients\": %d, \"verdicts\": %ld, \"verdicts_s\": %.1f, \"again\": %ld, "
           "\"claim_p50_ms\": "
           "%.2f, "
           "\"claim_p99_ms\": %.2f}\n",
           n, nclients, verdicts, (double)verdicts / seconds, again, nclaims ? all[nclaims / 2] : 0,
           nclaims ? all[nclaims * 99 / 100] : 0);
}

int
main(int argc, char **argv)
{
    static struct node nodes[NODES_MAX];
    int n = argc >= 4 ? atoi(argv[2]) : 0;
    double seconds = argc >= 4 ? atof(argv[3]) : 0;
    struct error err;

    if (n < 1 || n > NODES_MAX || seconds <= 0) {
        fprintf(stderr, "usage: cluster_load URL NODES SECONDS [CLIENTS]\n");
        return 2;
    }
    url = argv[1];
    nclients = argc > 4 ? atoi(argv[4]) : 0;
    hash_text("task", 4, task_id);
    snprintf(verdict, sizeof(verdict),
             "{\"class\":\"ok\",\"components\":{\"timed\":1,\"speedup\":2},\"x\":\"%01900d\"}", 0);
    for (int i = 0; i < n; i++) {
        struct store_options options = { .node = nodes[i].name, .lease_ms = 3600000 };
        snprintf(nodes[i].name, sizeof(nodes[i].name), "simulated-%d-%d", n, i);
        nodes[i].room = CLAIMS_MAX / (size_t)n;
        nodes[i].claim_ms = calloc(nodes[i].room, sizeof(double));
        check(pgsql_open(url, &options, &nodes[i].backend, &err), &err);
    }
    transact(&nodes[0], add_clients);
    int64_t begun_ns = clock_monotonic_ns();
    for (int i = 0; i < n; i++)
        pthread_create(&nodes[i].thread, NULL, work, &nodes[i]);
    struct timespec pause = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&pause, NULL);
    atomic_store(&is_over, true);
    for (int i = 0; i < n; i++)
        pthread_join(nodes[i].thread, NULL);
    print(nodes, n, (double)(clock_monotonic_ns() - begun_ns) / 1e9);
    for (int i = 0; i < n; i++)
        nodes[i].backend->ops->close(nodes[i].backend);
    return 0;
}
