/* needle_text.h - private: common functions of needle.c and needle_chain.c. */
#ifndef KVF_ENGINE_NEEDLE_TEXT_H
#define KVF_ENGINE_NEEDLE_TEXT_H

#include "engine/experiment/needle.h"

/* Streams of random numbers. The draws of one stream do not depend on other streams. */
enum { DRAW_KEYS, DRAW_VALUES, DRAW_DEPTH, DRAW_FILLER, DRAW_NAMES };

/* Appends filler sentence i, from stories or noise. */
void needle_put_filler(const struct needle_task *t, int i, struct buf *text);
/* Appends a span to a JSON array; spans may be NULL. */
void needle_put_span(struct buf *spans, const char *name, bool useful, size_t start, size_t end);
/* Appends the members "reply" and "answers", and the key "spans". The reply is lead, the n texts,
 * and a full stop. */
void needle_put_answers(struct buf *spans, const struct buf *lead, const struct buf *answer, int n);
/* Returns true if a needle at a relative depth precedes sentence s of n_sentences, or for s =
 * n_sentences, if it follows the last sentence. */
bool needle_is_before(double depth, int s, int n_sentences);
/* Ends the text and begins the question. Returns the offset of its first byte. */
size_t needle_begin_question(struct buf *text);

#endif
