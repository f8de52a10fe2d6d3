/* room.h - arrays that grow by doubling. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes room for one more element after the n of an array: if n == *cap, doubles *cap, from `least`
 * on, and moves the array, with zeroed new elements.  array: the address of the pointer to it.  If
 * memory is out, returns false and changes no array. */
bool mem_room(void *array, size_t n, size_t *cap, size_t least, size_t size);
