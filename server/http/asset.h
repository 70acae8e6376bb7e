/* asset.h - files that are part of the program: the dashboard and the API's description. */
#ifndef HTTP_ASSET_H
#define HTTP_ASSET_H

#include <stddef.h>

/* One file, embedded when the program is built (server/deploy/embed). All views, valid for ever. */
struct asset {
    const char *path; /* as requested: "/" is index.html, "/openapi.yaml", "/style.css" */
    const char *type; /* Content-Type */
    const char *etag; /* a strong validator with its quotes */
    const unsigned char *bytes;
    size_t size; /* bytes */
};

extern const struct asset assets[];
extern const size_t assets_count;

#endif
