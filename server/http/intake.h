/* intake.h - from the header of a request to its handler. Private to http/. Loop thread. */
#ifndef HTTP_INTAKE_H
#define HTTP_INTAKE_H

#include "server/http/engine.h"

/* Callbacks of MHD; cls is the http. */
enum MHD_Result exchange_access_cb(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                   const char *version, const char *upload, size_t *upload_size,
                                   void **con_cls);

/* MHD is about to refuse a request that no handler has seen, with this status. */
void exchange_refused_by_mhd(struct http *h, unsigned status);

#endif
