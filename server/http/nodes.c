#include "server/http/handlers.h"

/* /v1/nodes: the daemons that share the store, as each described itself there when it last renewed its lease. */

static void
node_row_cb(void *arg, const struct node_row *row)
{
    json_t *about = row->about ? json_loads(row->about, 0, NULL) : NULL;
    json_t *item = json_is_object(about) ? about : json_object();
    const char *state = row->lease_left_ms > 0 ? (row->is_draining ? "draining" : "alive")
                                               : (row->is_draining ? "stopped" : "lost");

    if (item != about)
        json_decref(about);
    json_object_set_new(item, "name", json_string(row->name));
    json_object_set_new(item, "epoch", json_integer(row->epoch));
    json_object_set_new(item, "state", json_string(state));
    json_object_set_new(item, "lease_s", json_real((double)row->lease_left_ms / 1000));
    json_object_set_new(item, "claimed", json_integer(row->claimed));
    json_array_append_new(arg, item);
}

static int
read_nodes(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    return reader_each_node(r, node_row_cb, call->items, err);
}

/* A file has one daemon, and no list of them. */
static void
answer_nodes(struct exchange *x, struct exchange_read *call)
{
    if (json_array_size(call->items) == 0)
        json_array_append_new(call->items, funnel_node(x->http->funnel));
    exchange_json(x, 200,
                  json_pack("{s:s, s:O}", "self", funnel_node_name(x->http->funnel), "items", call->items));
}

void
node_list(struct exchange *x)
{
    static const struct exchange_read call = { .read = read_nodes, .answer = answer_nodes, .what = "nodes" };
    struct exchange_read *c = exchange_read_new(x, &call, sizeof(*c));

    if (c)
        exchange_read(x, c);
}
