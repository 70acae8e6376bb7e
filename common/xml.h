/* xml.h - the text of an element, as the short answers of S3 services are read. No parser: no entities, no namespaces. */
#ifndef COMMON_XML_H
#define COMMON_XML_H

#include <stdbool.h>
#include <stddef.h>

/* What stands between two tags; a view of the document. */
struct xml_span {
    const char *at;
    size_t size;
};

/*
 * The content of the first element of this name in the document, however deep it stands. An element may have attributes
 * and may be empty (<Name/>); one in an element of its own name is not told apart. rest (may be NULL) is what follows it,
 * for the next one. False: there is none that is closed; out and rest are untouched.
 */
bool xml_element(struct xml_span document, const char *name, struct xml_span *out, struct xml_span *rest);
/* The same, its text without white space around it compared with one; false where there is no such element. */
bool xml_is(struct xml_span document, const char *name, const char *text);
/* The same text as a C string, fit for a terminal: "" where there is none, cut where it is too long, control bytes as blanks. */
void xml_copy(struct xml_span document, const char *name, char *out, size_t size);

#endif
