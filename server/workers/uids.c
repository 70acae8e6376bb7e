#include "server/workers/uids.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct uids {
    int64_t first, count, next;
    bool *is_taken; /* NULL: not root */
};

int
uids_new(int64_t first, int64_t count, struct uids **out, struct error *err)
{
    struct uids *u = calloc(1, sizeof(*u));

    *out = NULL;
    if (u && geteuid() == 0)
        u->is_taken = calloc((size_t)count, sizeof(*u->is_taken));
    if (!u || (geteuid() == 0 && !u->is_taken)) {
        free(u);
        return error_set(err, ERR_NOMEM, "no memory for user ids");
    }
    u->first = first;
    u->count = count;
    *out = u;
    return 0;
}

void
uids_free(struct uids *u)
{
    if (u)
        free(u->is_taken);
    free(u);
}

int
uids_take(struct uids *u, int64_t *uid, struct error *err)
{
    *uid = -1;
    if (!u->is_taken)
        return 0;
    for (int64_t tried = 0; tried < u->count; tried++) {
        int64_t at = u->next;
        u->next = (u->next + 1) % u->count;
        if (!u->is_taken[at]) {
            u->is_taken[at] = true;
            *uid = u->first + at;
            return 0;
        }
    }
    return error_set(err, ERR_FULL, "all %lld user ids are in use", (long long)u->count);
}

void
uids_give_back(struct uids *u, int64_t uid)
{
    if (u->is_taken && uid >= u->first && uid < u->first + u->count)
        u->is_taken[uid - u->first] = false;
}
