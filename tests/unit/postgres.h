/* postgres.h - a PostgreSQL server for one test program (server/deploy/postgres), started when it is first asked for. */
#ifndef TESTS_POSTGRES_H
#define TESTS_POSTGRES_H

#include <stddef.h>

#define POSTGRES_URL_SIZE 128

/* Makes an empty database, which goes with the server; url: with which store_open() reaches it. Fails the test where the server does not start. */
void postgres_new(char url[POSTGRES_URL_SIZE]);
/* Stop it as a crash does (pg_ctl stop -m immediate), and start it again over the same files. */
void postgres_crash(void);
void postgres_start(void);
/* Run statements as somebody else beside the store, in the database of url. One integer, or 0 where there is no row. */
long long postgres_number(const char *url, const char *sql);

#endif
