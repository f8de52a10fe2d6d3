/* page.h - the page without its data, which embed.py makes when kvfate is built. */
#pragma once

#include <stddef.h>

/* The bytes before and after the data. */
extern const unsigned char page_head[], page_script[], page_tail[];
extern const size_t page_head_size, page_script_size, page_tail_size;
