/* handle.h - the end of a handle of libuv that is a part of what its data is: uv_close(handle, handle_free_cb). */
#ifndef WORKERS_HANDLE_H
#define WORKERS_HANDLE_H

#include <stdlib.h>

#include <uv.h>

static inline void
handle_free_cb(uv_handle_t *handle)
{
    free(handle->data);
}

#endif
