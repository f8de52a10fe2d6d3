/* report.h - writes tables as one HTML file, a page that needs no network and no server.
 *
 * The page consists of page.html, style.css and *.js, which are assembled when kvfate is built.  It
 * reads the tables that are embedded in it as compressed columns, without loss (columns.h). The
 * keys of the tables decide which ones it shows (docs/reference/report.md); others can only be
 * downloaded.
 *
 * The scripts in trace/ read traces in the page and compute the same tables from them.
 *
 * Tables are packed when they are added, so the caller may destroy each before it makes the next.
 *
 * To add a panel to the report:
 *
 *   1. cli/cmd_report.c: a row of `jobs` with the key of the table on the page, and the
 *      analyzer and options that make it.
 *   2. render/report/js/panels.js, or a new file named in render/meson.build: a call of
 *      `panel(id, title, key, watch, make)`. `make` receives the table, reads columns with `rowsOf`
 *      or `Column.numbers`, and returns elements. Create text with `el` and `svg` of dom.js, never
 *      as markup: no text of a trace may become code. The page explains a missing table itself.
 *   3. render/report/report.c: add columns that the page can omit to `droppable`, in the order in
 *      which they are dropped if the page is too large.
 *   4. render/report/trace/tables.js: a row of TRACE_TABLES, which computes the table for traces
 *      that are opened in the page. tests/reader/test_tables.py compares both tables.
 *   5. docs/reference/report.md: describe the panel. tests/report/test_report.py opens the page;
 *      `check_tables` of test_file.py compares the numbers with the table.
 *
 * After `ninja`, `build/cli/kvfate report X.kvf -o x.html` shows an edit of the scripts. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/table.h"

struct report;

/* Creates an empty report.  Returns KVF_OK or KVF_E_NOMEM. */
int report_create(struct report **ret);
void report_destroy(struct report *r); /* accepts NULL */

/* Sets the command that makes the page, without its name and size.  The page shows it if columns
 * are omitted because of the size.  Returns KVF_OK or KVF_E_NOMEM. */
int report_command(struct report *r, const char *command);

/* Starts a trace: the next tables belong to it.  Returns KVF_OK or KVF_E_NOMEM. */
int report_trace(struct report *r, const char *name);

/* Adds a table.  key: its name on the page ("eviction"); command: the kvfate command that prints
 * it.  Progress of packing is reported to w, which may be NULL. Returns KVF_OK, KVF_E_NOMEM or
 * KVF_E_LIMIT. */
int report_table(struct report *r, const char *key, const char *command, const struct table *t,
                 const struct progress_callback *w);

/* Records why a table is missing.  Returns KVF_OK or KVF_E_NOMEM. */
int report_absent(struct report *r, const char *key, const char *why);

/* Writes the page.  While it is larger than max_bytes, optional columns of all traces are omitted
 * in a fixed order (docs/reference/report.md). The page and `left_out` list them ("eviction.margin,
 * eviction.score"; may be NULL). A page that is still too large is written anyway; *ret_bytes is
 * its size.  On error path is unchanged.  Returns KVF_OK, KVF_E_IO (with a message), KVF_E_NOMEM or
 * KVF_E_LIMIT. */
int report_write(struct report *r, int64_t max_bytes, const char *path, struct buf *left_out,
                 int64_t *ret_bytes, struct kvf_diag *d);

/* Returns the size in bytes of the page with all omitted columns, after report_write; 0 if no
 * column was omitted. */
int64_t report_whole(const struct report *r);
