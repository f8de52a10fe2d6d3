/* sparse.h - columns whose values are mostly one filler. It belongs to the programs of this project
 * and is not installed. */
#pragma once

#include <kvf/trace.h>

/* Compresses the columns [first, end) at zstd's level 1. At the level of other columns, values
 * between runs of a filler need more room than without the filler. Call it before the first
 * chunk. */
void writer_sparse(struct kvf_writer *w, int first, int end);
