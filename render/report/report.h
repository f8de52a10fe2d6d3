/* report.h - tables in, one HTML file out: a page that needs neither network nor server.
 *
 * The page (page.html, style.css, *.js, put together when kvfate is built) reads the tables
 * that are embedded in it: columns as compressed numbers, exactly those of the table
 * (columns.h).  Which tables it shows is a matter of their keys (docs/reference/report.md); others
 * are offered as downloads only.
 *
 * Tables are packed when they are added, so that the caller may destroy each before it makes
 * the next.
 *
 * To add a panel to the report:
 *
 * 1. cli/cmd_report.c: a row of `jobs`, which says by which key the page knows the table, and which
 *    analyzer makes it with which option.
 * 2. render/report/js/panels.js, or a file of its own beside it (named in render/meson.build): a
 *    call of `panel(id, title, key, watch, make)`.  `make` takes the table, reads columns with
 *    `rowsOf` or `Column.numbers`, and returns elements.  Text goes through `el` and `svg` of
 *    dom.js, never as markup: nothing of a trace may become code.  A panel without its table says
 *    why by itself.
 * 3. render/report/report.c: columns that the page can do without go into `droppable`, in the
 *    order in which they are left out when the page would be too large.
 * 4. docs/reference/report.md: what the panel shows.  tests/report/test_report.py opens the page;
 *    `check_tables` of test_file.py compares the numbers with the table.
 *
 * The page is put together when kvfate is built: after `ninja`, `build/cli/kvfate report X.kvf
 * -o x.html` shows an edit of the scripts. */
#ifndef KVF_RENDER_REPORT_REPORT_H
#define KVF_RENDER_REPORT_REPORT_H

#include <stdint.h>

#include "base/buf.h"
#include "base/table.h"

struct report;

/* KVF_OK or KVF_E_NOMEM. */
int report_create(struct report **ret);
void report_destroy(struct report *r); /* accepts NULL */

/* How to make the page, without its name and size: what the page says where it lacks something
 * for its size.  KVF_OK or KVF_E_NOMEM. */
int report_command(struct report *r, const char *command);

/* The tables that follow are of a trace of this name.  KVF_OK or KVF_E_NOMEM. */
int report_trace(struct report *r, const char *name);

/* key: what the page knows the table by ("eviction"); command: how kvfate prints it.  KVF_OK,
 * KVF_E_NOMEM or KVF_E_LIMIT.  w, unless NULL, is told how much is packed. */
int report_table(struct report *r, const char *key, const char *command, const struct table *t,
                 const struct teller *w);

/* Says in place of a table why there is none.  KVF_OK or KVF_E_NOMEM. */
int report_absent(struct report *r, const char *key, const char *why);

/* Writes the page.  While it would be larger than max_bytes, columns that the page can do
 * without are left out of all traces, in an order of their own (docs/reference/report.md), and
 * named in the page and in `left_out` ("eviction.margin, eviction.score"; may be NULL).  A file
 * that is too large without them is written all the same: *ret_bytes says its size.  Appears whole
 * or not at all.  KVF_OK, KVF_E_IO (with a sentence), KVF_E_NOMEM, KVF_E_LIMIT. */
int report_write(struct report *r, int64_t max_bytes, const char *path, struct buf *left_out,
                 int64_t *ret_bytes, struct kvf_diag *d);

/* After report_write: bytes of the page with all that was left out; 0: nothing was. */
int64_t report_whole(const struct report *r);

#endif
