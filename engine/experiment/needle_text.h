/* needle_text.h - private to the texts of needles: what texts of numbers and of chains share. */
#ifndef KVF_ENGINE_NEEDLE_TEXT_H
#define KVF_ENGINE_NEEDLE_TEXT_H

#include "engine/experiment/needle.h"

/* Streams of numbers: what is drawn for one thing does not depend on the others. */
enum { DRAW_KEYS, DRAW_VALUES, DRAW_DEPTH, DRAW_FILLER, DRAW_NAMES };

/* Appends sentence i of what hides the needles: stories or noise. */
void needle_put_filler(const struct needle_task *t, int i, struct buf *text);
/* Appends a span to a JSON array; spans may be NULL. */
void needle_put_span(struct buf *spans, const char *name, bool useful, size_t start, size_t end);
/* Appends the members "reply" and "answers", and the name of "spans": lead, the n texts, and a
 * full stop. */
void needle_put_answers(struct buf *spans, const struct buf *lead, const struct buf *answer, int n);
/* Whether a needle of a relative depth stands before sentence s of so many, or behind the last. */
bool needle_is_before(double depth, int s, int n_sentences);
/* Ends the text and begins the question: its first byte. */
size_t needle_begin_question(struct buf *text);

#endif
